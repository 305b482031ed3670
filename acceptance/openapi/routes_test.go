package openapi

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// That the program has no other routes than these is shown by a test beside its
// routes, in internal/httpapi.
func TestEveryMethodOfTheDocumentIsServedAndNoOther(t *testing.T) {
	d := load(t)
	w := newWalk(t, d, sidecar.Start(t), make(map[sight]bool))
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		var want []string
		for _, op := range d.operations() {
			if op.path == path {
				want = append(want, op.method)
			}
		}
		slices.Sort(want)
		door := w.process.URL
		if len(item.Servers) > 0 {
			door = w.process.Admin
		}
		a := w.probe("FROB", door+strings.Replace(path, "{key}", "cron%2Freport", 1))
		if allow := a.header.Get("Allow"); a.status != http.StatusMethodNotAllowed || allow != strings.Join(want, ", ") {
			t.Errorf("FROB %s: %d, allows %q, want %q", path, a.status, allow, want)
		}
		if door == w.process.URL {
			w.checkComponent("MethodNotAllowed", a)
		}
	}
	for _, path := range []string{
		"/lock", "/locks.json", "/status", "/openapi.yaml", "/metrics", "/livez", "/readyz", "/startupz", "/drain/", "/locksmith/k", "/debug/pprof/",
	} {
		a := w.probe(http.MethodGet, w.process.URL+path)
		if a.status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, a.status)
			continue
		}
		w.checkComponent("NotFound", a)
	}
	for _, path := range []string{"/", "/locks", "/locks/k", "/drain", "/quit", "/healthz", "/debug/pprof/"} {
		if a := w.probe(http.MethodGet, w.process.Admin+path); a.status != http.StatusNotFound {
			t.Errorf("GET %s on the admin door: %d", path, a.status)
		}
	}
}

// probe sends a request that is no operation.
func (w *walk) probe(method, url string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answerOf(response, body)
}
