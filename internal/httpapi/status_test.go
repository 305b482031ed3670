package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// busy is an overview with something of everything.
func busy(f *fakeLocks) locker.Overview {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := f.statusOf(1, locker.Request{Key: "a", Owner: "w", TTL: time.Minute, Renew: true})
	ahead := 2
	return locker.Overview{
		Tally: map[locker.EntryState]int{
			locker.EntryHeld: 7, locker.EntryAtRisk: 0, locker.EntryAsking: 1,
			locker.EntryWaiting: 2, locker.EntryReleasing: 1, locker.EntryLost: 1,
		},
		OldestHeldFor: time.Hour,
		Held:          locker.Section{Matching: 7, Entries: []locker.Entry{{State: locker.EntryHeld, Key: "a", Owner: "w", At: at, Status: &st}}},
		Waiting: locker.Section{Matching: 3, Entries: []locker.Entry{
			{State: locker.EntryWaiting, Key: "b", Owner: "x", Note: "n", At: at, For: time.Second, InLine: &locker.InLine{
				Place: 1, Left: 1500 * time.Millisecond, Ahead: &ahead,
				Occupancy: &locker.Occupancy{State: locker.OccupancyHeld, Holder: &locker.Holder{Pod: "p", Since: at, Note: "m"}, ExpiresIn: time.Hour, QueueLength: 3},
			}},
			{State: locker.EntryWaiting, Key: "c", At: at, For: time.Second, InLine: &locker.InLine{Place: 1}},
			{State: locker.EntryAsking, Key: "d", At: at},
		}},
		Releasing: locker.Section{Matching: 1, Entries: []locker.Entry{{State: locker.EntryReleasing, Key: "e", At: at, For: 2 * time.Second}}},
		Lost: locker.Section{Matching: 1, Entries: []locker.Entry{
			{State: locker.EntryLost, Key: "f", At: at, For: 3 * time.Second, Lost: &locker.LostError{Fence: 9, Cause: locker.CauseTaken, LostAt: at}},
		}},
	}
}

func TestTheStatusTellsHowItIs(t *testing.T) {
	locks := newFakeLocks()
	cfg := testConfig(locks)
	cfg.Backend, cfg.Scope = "single redis:6379", "5b0f"
	locks.over = func(locker.Query) locker.Overview { return busy(locks) }
	cfg.Health = func(context.Context) Health {
		return Health{Problem: "unavailable", Draining: true, Warnings: []string{"evicts"}}
	}
	response := do(t, newAPI(cfg), "GET", "/", "")
	want := `{"version":"v1.2.3","holder":"shop/web-0","backend":"single redis:6379","scope":"5b0f","store":"unavailable","draining":true,"warnings":["evicts"],` +
		`"locks":{"asking":1,"at_risk":0,"held":7,"lost":1,"releasing":1,"waiting":2},"oldest_held_for_ms":3600000,` +
		`"held":{"matching":7,"rows":[{"key":"a","state":"held","owner":"w","note":"","fencing_token":1001,"acquired_at":"2026-11-29T16:00:00.123Z",` +
		`"ttl_ms":60000,"valid_for_ms":59997,"valid_until_boottime_ms":123456,"renew":true,"bind":"none","max_hold_ms":0,"min_hold_ms":0,"held_for_ms":1,"renewals":3}]},` +
		`"waiting":{"matching":3,"rows":[` +
		`{"key":"b","state":"waiting","owner":"x","note":"n","since":"2026-01-02T03:04:05.000Z","for_ms":1000,"place":1,"pods_ahead":2,"wait_left_ms":1500,` +
		`"occupancy":{"state":"held","holder":{"pod":"p","since":"2026-01-02T03:04:05.000Z","note":"m"},"expires_in_ms":null,"queue_length":3}},` +
		`{"key":"c","state":"waiting","owner":"","note":"","since":"2026-01-02T03:04:05.000Z","for_ms":1000,"place":1,"pods_ahead":null,"wait_left_ms":0,"occupancy":null},` +
		`{"key":"d","state":"asking","owner":"","note":"","since":"2026-01-02T03:04:05.000Z","for_ms":0}]},` +
		`"releasing":{"matching":1,"rows":[{"key":"e","state":"releasing","owner":"","note":"","since":"2026-01-02T03:04:05.000Z","for_ms":2000}]},` +
		`"lost":{"matching":1,"rows":[{"key":"f","state":"lost","owner":"","note":"","since":"2026-01-02T03:04:05.000Z","for_ms":3000,"fencing_token":9,"cause":"taken"}]}}` + "\n"
	if body := bodyOf(t, response); response.StatusCode != 200 || body != want {
		t.Errorf("%d\n got %s\nwant %s", response.StatusCode, body, want)
	}
}

func TestTheStatusOfAnIdleSidecarHasListsAndNoNulls(t *testing.T) {
	if body := bodyOf(t, do(t, newAPI(testConfig(newFakeLocks())), "GET", "/", "")); strings.Count(body, `{"matching":0,"rows":[]}`) != 4 || !strings.Contains(body, `"warnings":[]`) {
		t.Error(body)
	}
}

func TestWhatTheStatusIsAnsweredWith(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "application/json": "application/json", "text/*": "text/html; charset=utf-8",
		"text/plain": "application/json", "image/png": "application/json", "text/html;q=0.5,application/json": "application/json",
		browser: "text/html; charset=utf-8", "text/html": "text/html; charset=utf-8", "text/html, */*;q=0.1": "text/html; charset=utf-8",
		"text/event-stream": "text/event-stream", "text/event-stream, */*;q=0.5": "text/event-stream", "text/html;q=0.5,text/event-stream": "text/event-stream",
	} {
		response := do(t, newAPI(testConfig(newFakeLocks())), "HEAD", "/", "", "Accept", accept)
		if got := response.Header.Get("Content-Type"); got != want && accept != "text/*" || response.StatusCode != 200 || response.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: %d %q, want %q; Vary %q", accept, response.StatusCode, got, want, response.Header.Get("Vary"))
		}
	}
}

func TestTheStatusCanBeNarrowed(t *testing.T) {
	for target, want := range map[string]locker.Query{
		"/":                          {Limit: 200},
		"/?limit=0":                  {Limit: 0},
		"/?limit=1000&search=a%20b":  {Match: "a b", Limit: 1000},
		"/?search=":                  {Limit: 200},
		"/?search=%3Cimg%20onerror=": {Match: "<img onerror=", Limit: 200},
	} {
		locks := newFakeLocks()
		asked := locker.Query{Limit: -1}
		locks.over = func(q locker.Query) locker.Overview { asked = q; return locker.Overview{} }
		if response := do(t, newAPI(testConfig(locks)), "GET", target, ""); response.StatusCode != 200 || asked != want {
			t.Errorf("%s: %d, asked for %+v", target, response.StatusCode, asked)
		}
	}
	for _, target := range []string{
		"/?limit=-1", "/?limit=1001", "/?limit=1.5", "/?limit=%201", "/?limit=all", "/?limit=", "/?limit=1&limit=2",
		"/?search=" + strings.Repeat("x", 513), "/?search=%00", "/?search=%ff", "/?q=x",
	} {
		for _, accept := range []string{"*/*", "text/html", "text/event-stream"} {
			response := do(t, newAPI(testConfig(newFakeLocks())), "GET", target, "", "Accept", accept)
			if code, _ := codeOf(t, response); response.StatusCode != 400 || code != "invalid_parameter" {
				t.Errorf("%s as %s: %d %s", target, accept, response.StatusCode, code)
			}
		}
	}
}

func TestTheStatusIsReadOnly(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		response := do(t, newAPI(testConfig(newFakeLocks())), method, "/", "", "Accept", "text/html")
		if allow := response.Header.Get("Allow"); response.StatusCode != http.StatusMethodNotAllowed || allow != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, response.StatusCode, allow)
		}
	}
}
