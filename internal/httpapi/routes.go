package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// api is the handler behind the API's door.
type api struct {
	Config
	gate     gate
	page     page
	feeds    *feeds
	routes   map[string]methods // by chi's pattern of the path
	patterns chi.Router
	matches  sync.Pool // of *chi.Context
}

// route answers one kind of request; its error becomes a problem.
type route func(w http.ResponseWriter, r *http.Request) error

// methods are the routes of one resource.
type methods map[string]route

func newAPI(cfg Config) *api {
	cfg.Reserved = append(slices.Clone(cfg.Reserved), cfg.Holder)
	a := &api{Config: cfg, gate: newGate(cfg), page: newPage(), feeds: newFeeds(), patterns: chi.NewRouter()}
	a.routes = map[string]methods{
		"/":        {http.MethodGet: a.status},
		"/drain":   {http.MethodPost: a.drain},
		"/quit":    {http.MethodPost: a.quit},
		"/locks":   {http.MethodGet: a.list, http.MethodDelete: a.releaseMany},
		"/locks/*": {http.MethodPost: a.acquire, http.MethodGet: a.get, http.MethodPatch: a.extend, http.MethodDelete: a.release},
	}
	for pattern, methods := range a.routes {
		if get, ok := methods[http.MethodGet]; ok {
			methods[http.MethodHead] = get
		}
		a.patterns.Handle(pattern, http.NotFoundHandler()) // only ever matched
	}
	a.matches.New = func() any { return chi.NewRouteContext() }
	return a
}

// routeOf finds who answers the request. chi matches the path only: were it to
// serve, it would copy the request and collect the values of wildcards, which
// cost more than the matching. A key is read from the path itself, see keyOf.
func (a *api) routeOf(w http.ResponseWriter, r *http.Request) (route, error) {
	path := cmp.Or(r.URL.RawPath, r.URL.Path, "/")
	match := a.matches.Get().(*chi.Context)
	match.Reset()
	resource := a.routes[a.patterns.Find(match, http.MethodGet, path)]
	a.matches.Put(match)
	if resource == nil {
		return nil, refuse("not_found", "")
	}
	serve := resource[r.Method]
	if serve == nil {
		allowed := strings.Join(slices.Sorted(maps.Keys(resource)), ", ")
		w.Header().Set("Allow", allowed)
		return nil, refuse("method_not_allowed", "this resource takes "+allowed)
	}
	return serve, nil
}

// What every answer has. Nobody changes a header's values in place.
var noStore, noSniff = []string{"no-store"}, []string{"nosniff"}

// ServeHTTP reads the request to its end, checks whether it may come in, and
// only then looks at what it wants: net/http notices that a caller has gone
// only once the body has been read.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.recover(w, r)
	h := w.Header()
	h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	if len(r.TransferEncoding) > 0 {
		// Where a chunked body ends is what request smuggling argues about.
		h.Set("Connection", "close")
	}
	err := readBody(w, r)
	if err == nil {
		err = a.gate.admit(r)
	}
	var serve route
	if err == nil {
		serve, err = a.routeOf(w, r)
	}
	if err == nil {
		err = serve(w, r)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// recover answers 500 for a handler that panicked. What was granted has been
// given back by then.
func (a *api) recover(w http.ResponseWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	a.Log.Error("request handler panicked", "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
	w.Header().Set("Connection", "close")
	a.fail(w, r, refuse("internal_error", ""))
}

// fail answers with the problem that err is.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= 500 {
		a.Log.Log(r.Context(), severity(p, err), "request failed", "code", p.Code, "key", keyForLog(r), "err", err)
	}
	h := w.Header()
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="locksidecar"`)
	}
	if p.closes {
		h.Set("Connection", "close")
	}
	respondProblem(w, r, p)
}

// severity is how loudly a failure is logged: faults and the store's trouble
// are news, a refusal is not.
func severity(p *problem, err error) slog.Level {
	switch {
	case p.Status == http.StatusInternalServerError:
		return slog.LevelError
	case as[*locker.StoreError](err), p.Code == "token_unavailable":
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
