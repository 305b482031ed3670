package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

func adminOf(cfg AdminConfig) http.Handler {
	if cfg.Metrics == nil {
		cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	}
	if cfg.Live == nil {
		cfg.Live = func() error { return nil }
	}
	if cfg.Started == nil {
		cfg.Started = func() bool { return true }
	}
	if cfg.Health == nil {
		cfg.Health = func(context.Context) Health { return Health{} }
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	return NewAdmin(cfg).Handler()
}

func TestTheAdminDoorTellsHowTheProcessIs(t *testing.T) {
	stuck := AdminConfig{Live: func() error { return errors.New("the watchdog has not turned for 20s") }}
	starting := AdminConfig{Started: func() bool { return false }}
	health := func(h Health) AdminConfig { return AdminConfig{Health: func(context.Context) Health { return h }} }
	for _, test := range []struct {
		cfg    AdminConfig
		path   string
		status int
		body   string
	}{
		{AdminConfig{}, "/metrics", 200, "metrics"},
		{AdminConfig{}, "/livez", 200, "ok\n"},
		{AdminConfig{}, "/readyz", 200, "ok\n"},
		{AdminConfig{}, "/startupz", 200, "ok\n"},
		{stuck, "/livez", 503, "the watchdog has not turned for 20s\n"},
		{stuck, "/readyz", 200, "ok\n"},
		{starting, "/startupz", 503, "starting: the doors are not open yet\n"},
		{starting, "/livez", 200, "ok\n"},
		{health(Health{Problem: "unavailable"}), "/readyz", 503, "store: unavailable\n"},
		{health(Health{Journal: "cannot be written"}), "/readyz", 503, "cannot be written\n"},
		{health(Health{Problem: "unavailable"}), "/livez", 200, "ok\n"},
		{health(Health{Draining: true, Problem: "x"}), "/readyz", 503, "draining: new locks are refused\n"},
		{health(Health{Warnings: []string{"evicts", "no persistence"}}), "/readyz", 200, "ok\nwarning: evicts\nwarning: no persistence\n"},
	} {
		w := httptest.NewRecorder()
		adminOf(test.cfg).ServeHTTP(w, httptest.NewRequest("GET", test.path, http.NoBody))
		if w.Code != test.status || w.Body.String() != test.body {
			t.Errorf("%s: %d %q, want %d %q", test.path, w.Code, w.Body, test.status, test.body)
		}
	}
}

func TestTheAdminDoorHasNothingElse(t *testing.T) {
	h := adminOf(AdminConfig{})
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/locks", "/locks/k", "/quit", "/drain", "/metrics/", "//metrics", "/livez/x"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://10.0.0.1"+path, http.NoBody))
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "AAAA1"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", http.NoBody))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
}
