package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// api is the handler behind the API's door.
type api struct {
	Config
	gate   gate
	router chi.Router
}

// route answers one kind of request; its error becomes a problem.
type route func(w http.ResponseWriter, r *http.Request) error

func newAPI(cfg Config) *api {
	cfg.Reserved = append(slices.Clone(cfg.Reserved), cfg.Holder)
	a := &api{Config: cfg, gate: newGate(cfg)}
	mux := chi.NewRouter()
	for pattern, methods := range map[string]map[string]route{
		"/":        {http.MethodGet: a.status},
		"/drain":   {http.MethodPost: a.drain},
		"/quit":    {http.MethodPost: a.quit},
		"/locks":   {http.MethodGet: a.list, http.MethodDelete: a.releaseMany},
		"/locks/*": {http.MethodPost: a.acquire, http.MethodGet: a.get, http.MethodPatch: a.extend, http.MethodDelete: a.release},
	} {
		for method, serve := range methods {
			mux.Method(method, pattern, a.handler(serve))
			if method == http.MethodGet {
				mux.Method(http.MethodHead, pattern, a.handler(serve))
			}
		}
	}
	mux.NotFound(a.handler(func(http.ResponseWriter, *http.Request) error { return refuse("not_found", "") }))
	mux.MethodNotAllowed(a.handler(a.wrongMethod))
	a.router = mux
	return a
}

func (a *api) handler(serve route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			a.fail(w, r, err)
		}
	}
}

// ServeHTTP reads the request to its end, checks whether it may come in, and
// only then looks at what it wants: net/http notices that a caller has gone
// only once the body has been read.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.recover(w, r)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if len(r.TransferEncoding) > 0 {
		// Where a chunked body ends is what request smuggling argues about.
		h.Set("Connection", "close")
	}
	err := readBody(w, r)
	if err == nil {
		err = a.gate.admit(r)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.router.ServeHTTP(w, r)
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

var servedMethods = []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost}

// wrongMethod answers 405, or 404 where no method would help: chi comes here
// for every method that it has no word for, whatever the path.
func (a *api) wrongMethod(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	allowed := slices.DeleteFunc(slices.Clone(servedMethods), func(method string) bool {
		return !a.router.Match(chi.NewRouteContext(), method, path)
	})
	if len(allowed) == 0 {
		return refuse("not_found", "")
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return refuse("method_not_allowed", "this resource takes "+list)
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
