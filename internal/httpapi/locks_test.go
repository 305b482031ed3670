package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAGrantIsToldInFull(t *testing.T) {
	for _, test := range []struct {
		repeated bool
		status   int
	}{{false, http.StatusCreated}, {true, http.StatusOK}} {
		locks := newFakeLocks()
		locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
			return locks.statusOf(1, r), test.repeated, nil
		}
		response := do(t, newAPI(testConfig(locks)), "POST", "/locks/a/b", "owner=w1&note=n&max_hold=1h&min_hold=5s")
		want := `{"key":"a/b","state":"held","owner":"w1","note":"n","fencing_token":1001,` +
			`"acquired_at":"2026-11-29T16:00:00.123Z","ttl_ms":30000,"valid_for_ms":29997,` +
			`"valid_until_boottime_ms":123456,"renew":true,"bind":"none","max_hold_ms":3600000,"min_hold_ms":5000}` + "\n"
		if got := bodyOf(t, response); response.StatusCode != test.status || got != want {
			t.Errorf("status %d\n got %s\nwant %s", response.StatusCode, got, want)
		}
		for name, value := range map[string]string{
			"Lock-Fencing-Token": "1001", "Content-Type": "application/json",
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if got := response.Header.Get(name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		locks.checkLedger(t)
	}
}

func TestGetTellsOfALockThatIsHeld(t *testing.T) {
	locks := newFakeLocks()
	var asked locker.Handle
	locks.get = func(key locker.Key, h locker.Handle) (locker.Status, error) {
		asked = h
		st := locks.statusOf(1, locker.Request{Key: key, Owner: "w1", TTL: 30 * time.Second})
		st.State = locker.StateAtRisk
		return st, nil
	}
	h := newAPI(testConfig(locks))
	response := do(t, h, "GET", "/locks/k?owner=w1&fencing_token=1001", "")
	if asked != (locker.Handle{Fence: 1001, Owner: "w1"}) {
		t.Errorf("asked with %+v", asked)
	}
	body := bodyOf(t, response)
	for _, member := range []string{`"state":"at_risk"`, `"held_for_ms":1,`, `"renewals":3`, `"renew":false`} {
		if !strings.Contains(body, member) {
			t.Errorf("%s is missing in %s", member, body)
		}
	}
	if response.Header.Get("Lock-Fencing-Token") != "1001" {
		t.Error("no fencing token in the header")
	}
	head := do(t, h, "HEAD", "/locks/k?owner=w1", "")
	if head.StatusCode != http.StatusOK {
		t.Errorf("HEAD: status %d", head.StatusCode)
	}
	if n := locks.calls.Load(); n != 0 {
		t.Errorf("reading made %d calls that change something", n)
	}
}

func TestNotHeldTellsWhoHasTheKey(t *testing.T) {
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		for name, test := range map[string]struct {
			occupancy locker.Occupancy
			err       error
			want      string
		}{
			"held": {locker.Occupancy{State: locker.OccupancyHeld, ExpiresIn: 12345678 * time.Microsecond, QueueLength: 2,
				Holder: &locker.Holder{Pod: "shop/web-1", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Note: "x"}}, nil,
				`"state":"held","holder":{"pod":"shop/web-1","since":"2026-01-02T03:04:05.000Z","note":"x"},"expires_in_ms":12345,"queue_length":2`},
			"held by others' code": {locker.Occupancy{State: locker.OccupancyHeld, ExpiresIn: time.Second}, nil,
				`"state":"held","holder":null,"expires_in_ms":1000,"queue_length":0`},
			"since unknown": {locker.Occupancy{State: locker.OccupancyMinHold, Holder: &locker.Holder{Pod: "p"}}, nil,
				`"state":"min_hold","holder":{"pod":"p","since":null,"note":""},"expires_in_ms":0,"queue_length":0`},
			"free": {locker.Occupancy{State: locker.OccupancyFree}, nil, `"state":"free","holder":null,"expires_in_ms":0,"queue_length":0`},
			"store down": {locker.Occupancy{}, &locker.StoreError{Reason: locker.StoreTimeout, Err: errors.New("dial tcp 10.0.0.7")},
				`"state":"unknown","holder":null,"expires_in_ms":null,"queue_length":null`},
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				locks := newFakeLocks()
				locks.release = func(context.Context, locker.Key, locker.Handle, locker.ReleaseOptions) error {
					return locker.ErrNotHeld
				}
				locks.inspect = func(locker.Key) (locker.Occupancy, error) { return test.occupancy, test.err }
				response := do(t, newAPI(testConfig(locks)), method, "/locks/k", "")
				body := bodyOf(t, response)
				if response.StatusCode != 404 || !strings.Contains(body, test.want) || !strings.Contains(body, `"code":"not_held"`) {
					t.Errorf("%d %s\nwant …%s…", response.StatusCode, body, test.want)
				}
				if strings.Contains(body, "10.0.0.7") {
					t.Error("the driver's words reached the caller")
				}
			})
		}
	}
}

func TestPatchChangesWhatIsGiven(t *testing.T) {
	type call struct {
		h locker.Handle
		c locker.Changes
	}
	show := func(c call) string {
		s := "fence " + c.h.Owner
		if c.c.TTL != nil {
			s += " ttl " + c.c.TTL.String()
		}
		if c.c.MaxHold != nil {
			s += " max_hold " + c.c.MaxHold.String()
		}
		if c.c.Note != nil {
			s += " note '" + *c.c.Note + "'"
		}
		return s
	}
	for body, want := range map[string]string{
		"":                                  "fence ",
		"owner=w&ttl=1m":                    "fence w ttl 1m0s",
		"note=":                             "fence  note ''",
		"max_hold=0&note=late":              "fence  max_hold 0s note 'late'",
		"ttl=2s&max_hold=1h&owner=w&note=x": "fence w ttl 2s max_hold 1h0m0s note 'x'",
	} {
		locks := newFakeLocks()
		var got call
		locks.extend = func(ctx context.Context, key locker.Key, h locker.Handle, c locker.Changes) (locker.Status, error) {
			got = call{h, c}
			return locks.statusOf(1, locker.Request{Key: key}), nil
		}
		response := do(t, newAPI(testConfig(locks)), "PATCH", "/locks/k", body)
		if response.StatusCode != http.StatusOK || show(got) != want {
			t.Errorf("%q: status %d, call %s, want %s", body, response.StatusCode, show(got), want)
		}
	}
}

func TestDeleteReleasesAsItWasTold(t *testing.T) {
	for target, want := range map[string]struct {
		h locker.Handle
		o locker.ReleaseOptions
	}{
		"/locks/k":                         {},
		"/locks/k?owner=w&fencing_token=7": {h: locker.Handle{Fence: 7, Owner: "w"}},
		"/locks/k?force=true&min_hold=0":   {o: locker.ReleaseOptions{Force: true, SkipMinHold: true}},
		"/locks/k?force=false&min_hold=0s": {o: locker.ReleaseOptions{SkipMinHold: true}},
	} {
		locks := newFakeLocks()
		locks.release = func(_ context.Context, _ locker.Key, h locker.Handle, o locker.ReleaseOptions) error {
			if h != want.h || o != want.o {
				t.Errorf("%s: released with %+v and %+v", target, h, o)
			}
			return nil
		}
		response := do(t, newAPI(testConfig(locks)), "DELETE", target, "")
		if body := bodyOf(t, response); response.StatusCode != http.StatusNoContent || body != "" || locks.calls.Load() != 1 {
			t.Errorf("%s: status %d, body %q", target, response.StatusCode, body)
		}
	}
}

func TestAcceptedChangesOutliveTheirCaller(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	locks := newFakeLocks()
	locks.release = func(ctx context.Context, _ locker.Key, _ locker.Handle, _ locker.ReleaseOptions) error {
		return ctx.Err()
	}
	locks.extend = func(ctx context.Context, key locker.Key, _ locker.Handle, _ locker.Changes) (locker.Status, error) {
		return locks.statusOf(1, locker.Request{Key: key}), ctx.Err()
	}
	a := newAPI(testConfig(locks))
	for _, method := range []string{"PATCH", "DELETE"} {
		r, err := http.NewRequestWithContext(gone, method, "http://localhost/locks/k", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		serve := map[string]route{"PATCH": a.extend, "DELETE": a.release}[method]
		if err := serve(httptest.NewRecorder(), r); err != nil {
			t.Errorf("%s ended with its caller", method)
		}
	}
}
