package httpapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// AdminConfig is what the admin door shows. All fields must be set.
type AdminConfig struct {
	Metrics http.Handler                 // GET /metrics
	Live    func() error                 // fails if the watchdog is stuck; knows nothing of the store
	Started func() bool                  // both doors are open
	Health  func(context.Context) Health // asks the store
	Log     *slog.Logger
}

// NewAdmin returns the server of the admin door: GET only, no token, no keys,
// and nothing that changes anything.
func NewAdmin(cfg AdminConfig) *Server {
	return newServer(adminHandler(cfg), cfg.Log)
}

func adminPages(cfg AdminConfig) map[string]http.Handler {
	return map[string]http.Handler{
		"/metrics": cfg.Metrics,
		"/livez": check(func(context.Context) (string, bool) {
			if err := cfg.Live(); err != nil {
				return err.Error(), false
			}
			return "ok", true
		}),
		"/startupz": check(func(context.Context) (string, bool) {
			if !cfg.Started() {
				return "starting: the doors are not open yet", false
			}
			return "ok", true
		}),
		"/readyz": check(func(ctx context.Context) (string, bool) { return readiness(cfg.Health(ctx)) }),
	}
}

func adminHandler(cfg AdminConfig) http.Handler {
	pages := adminPages(cfg)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Path]
		switch {
		case page == nil:
			http.Error(w, "not found", http.StatusNotFound)
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
		default:
			limitWrite(w)
			page.ServeHTTP(w, r)
		}
	})
}

// readiness says in words for people whether new locks can be had here.
func readiness(h Health) (text string, ok bool) {
	lines := []string{"ok"}
	switch {
	case h.Draining:
		lines[0] = "draining: new locks are refused"
	case h.Problem != "":
		lines[0] = "store: " + h.Problem
	case h.Journal != "":
		lines[0] = h.Journal
	}
	for _, warning := range h.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return strings.Join(lines, "\n"), lines[0] == "ok"
}

// check is a page that answers 200 or 503 with a few words.
func check(ask func(context.Context) (text string, ok bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := ask(r.Context())
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", fmt.Sprint(len(text)+1))
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, text+"\n")
	})
}
