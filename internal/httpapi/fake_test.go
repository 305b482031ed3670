package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// patience is how long a test waits for what must come about: far longer than a
// busy machine stops a process, and far shorter than a lock lasts by itself.
const patience = 10 * time.Second

// promptly fails if what takes no time takes longer than that three times over:
// once is the machine's doing.
func promptly(t *testing.T, what string, most time.Duration, try func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		if took = append(took, try()); took[len(took)-1] <= most {
			return
		}
	}
	t.Errorf("%s took %v, want at most %v", what, took, most)
}

// fakeLocks grants everything, unless a function says otherwise, and keeps a
// ledger of what became of the grants.
type fakeLocks struct {
	acquire func(context.Context, locker.Request) (locker.Status, bool, error)
	get     func(locker.Key, locker.Handle) (locker.Status, error)
	lasts   func(locker.GrantID) bool // nil for never
	inspect func(locker.Key) (locker.Occupancy, error)
	extend  func(context.Context, locker.Key, locker.Handle, locker.Changes) (locker.Status, error)
	release func(context.Context, locker.Key, locker.Handle, locker.ReleaseOptions) error
	where   func(owner string, all bool) (released, unconfirmed []locker.Key)
	list    func() []locker.Entry
	over    func(locker.Query) locker.Overview
	changes func() <-chan struct{} // nil for never

	calls   atomic.Int64 // that could change something
	drained atomic.Bool

	mu      sync.Mutex
	last    locker.GrantID
	granted map[locker.GrantID]int // successes that are not settled
	back    map[locker.GrantID]int
	cleared map[locker.GrantID]int
	arrived map[locker.GrantID]int // told of by Delivered
	wrong   []locker.GrantID       // settled more often than granted
	changed chan struct{}
}

func newFakeLocks() *fakeLocks {
	return &fakeLocks{
		granted: make(map[locker.GrantID]int), back: make(map[locker.GrantID]int),
		cleared: make(map[locker.GrantID]int), arrived: make(map[locker.GrantID]int), changed: make(chan struct{}),
	}
}

func (f *fakeLocks) Acquire(ctx context.Context, r locker.Request) (locker.Status, bool, error) {
	f.calls.Add(1)
	if f.acquire != nil {
		st, repeated, err := f.acquire(ctx, r)
		if err == nil {
			f.mu.Lock()
			f.granted[st.ID]++
			f.mu.Unlock()
		}
		return st, repeated, err
	}
	return f.grant(r), false, nil
}

// grant makes a new grant and writes it into the ledger.
func (f *fakeLocks) grant(r locker.Request) locker.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	f.granted[f.last]++
	return f.statusOf(f.last, r)
}

func (f *fakeLocks) statusOf(id locker.GrantID, r locker.Request) locker.Status {
	return locker.Status{
		ID: id, Key: r.Key, Owner: r.Owner, Note: r.Note, Fence: locker.Fence(1000 + id), State: locker.StateHeld,
		AcquiredAt: time.Date(2026, 11, 29, 17, 0, 0, 123456789, time.FixedZone("", 3600)), TTL: r.TTL,
		ValidFor: r.TTL - 2*time.Millisecond - time.Microsecond, ValidUntil: 123456789 * locker.Instant(time.Microsecond),
		HeldFor: 1500 * time.Microsecond, Renewals: 3, Renew: r.Renew, MaxHold: r.MaxHold, MinHold: r.MinHold,
	}
}

func (f *fakeLocks) settle(id locker.GrantID, as map[locker.GrantID]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.granted[id]--; f.granted[id] < 0 {
		f.wrong = append(f.wrong, id)
	}
	as[id]++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeLocks) GiveBack(id locker.GrantID) { f.settle(id, f.back) }
func (f *fakeLocks) Cleared(id locker.GrantID)  { f.settle(id, f.cleared) }

func (f *fakeLocks) Delivered(id locker.GrantID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived[id]++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeLocks) Unbind(id locker.GrantID, how locker.Parting) {
	if how == locker.LeftUntold {
		f.settle(id, f.back)
	} else {
		f.settle(id, f.cleared)
	}
}

func (f *fakeLocks) Follow(locker.GrantID, func()) (*locker.Watch, error) {
	return nil, locker.ErrNotHeld
}

func (f *fakeLocks) Get(key locker.Key, h locker.Handle) (locker.Status, error) {
	if f.get != nil {
		return f.get(key, h)
	}
	return locker.Status{}, locker.ErrNotHeld
}

func (f *fakeLocks) Lasts(id locker.GrantID) bool { return f.lasts != nil && f.lasts(id) }

func (f *fakeLocks) Inspect(_ context.Context, key locker.Key) (locker.Occupancy, error) {
	if f.inspect != nil {
		return f.inspect(key)
	}
	return locker.Occupancy{State: locker.OccupancyFree}, nil
}

func (f *fakeLocks) Extend(ctx context.Context, key locker.Key, h locker.Handle, c locker.Changes) (locker.Status, error) {
	f.calls.Add(1)
	if f.extend != nil {
		return f.extend(ctx, key, h, c)
	}
	return locker.Status{}, locker.ErrNotHeld
}

func (f *fakeLocks) Release(ctx context.Context, key locker.Key, h locker.Handle, o locker.ReleaseOptions) error {
	f.calls.Add(1)
	if f.release != nil {
		return f.release(ctx, key, h, o)
	}
	return nil
}

func (f *fakeLocks) ReleaseWhere(_ context.Context, owner string, all bool) (released, unconfirmed []locker.Key) {
	f.calls.Add(1)
	if f.where != nil {
		return f.where(owner, all)
	}
	return nil, nil
}

func (f *fakeLocks) List() []locker.Entry {
	if f.list != nil {
		return f.list()
	}
	return nil
}

func (f *fakeLocks) Overview(q locker.Query) locker.Overview {
	if f.over != nil {
		return f.over(q)
	}
	return locker.Overview{}
}

func (f *fakeLocks) Changes() <-chan struct{} {
	if f.changes != nil {
		return f.changes()
	}
	return nil
}

func (f *fakeLocks) Drain() {
	f.calls.Add(1)
	f.drained.Store(true)
}

// fate is what the ledger says of a grant.
type fate string

const (
	fateOpen      fate = "open"
	fateGivenBack fate = "given back"
	fateCleared   fate = "cleared"
)

func (f *fakeLocks) fate(id locker.GrantID) (fate, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.back[id] > 0:
		return fateGivenBack, f.changed
	case f.cleared[id] > 0:
		return fateCleared, f.changed
	}
	return fateOpen, f.changed
}

// awaitFate waits until the grant is settled, at most so long, and checks how.
func (f *fakeLocks) awaitFate(t *testing.T, id locker.GrantID, want fate, within time.Duration) {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		got, changed := f.fate(id)
		if got == want {
			return
		}
		if got != fateOpen {
			t.Fatalf("grant %d is %s, want %s", id, got, want)
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("grant %d is not settled after %s, want %s", id, within, want)
		}
	}
}

// awaitSettled waits until so many grants have been made and settled.
func (f *fakeLocks) awaitSettled(t *testing.T, grants int, within time.Duration) {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		f.mu.Lock()
		settled, changed := len(f.back)+len(f.cleared), f.changed
		f.mu.Unlock()
		if settled == grants {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("%d grants are settled after %s, want %d", settled, within, grants)
		}
	}
}

// checkLedger fails unless every success was settled exactly once.
func (f *fakeLocks) checkLedger(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) > 0 {
		t.Errorf("settled more often than granted: %v", f.wrong)
	}
	for id, open := range f.granted {
		if open > 0 {
			t.Errorf("grant %d was never settled", id)
		}
	}
}

func testConfig(locks Locks) Config {
	return Config{
		Locks: locks, Log: slog.New(slog.DiscardHandler), Version: "v1.2.3",
		Holder: "shop/web-0", Reserved: []string{"web-0"},
		DefaultTTL: 30 * time.Second, MaxTTL: 24 * time.Hour, MaxWait: time.Hour,
		AllowedHosts: []string{"locks.example"},
		Now:          func() locker.Instant { return locker.Instant(time.Minute) }, // before the grants of fakeLocks end
		Quit:         func() {},
		Health:       func(context.Context) Health { return Health{} },
	}
}

// do sends one request to the handler without a network.
func do(t *testing.T, h http.Handler, method, target, body string, headers ...string) *http.Response {
	t.Helper()
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, target, http.NoBody)
	} else {
		r = httptest.NewRequest(method, target, strings.NewReader(body))
	}
	r.Host = "localhost:5625"
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// serve runs the API on a listener of the network and returns its address.
// The server is shut down, and the ledger checked, when the test ends.
func serve(t *testing.T, network string, cfg Config) (s *Server, address string) {
	t.Helper()
	s = New(cfg)
	return s, serveOn(t, network, s)
}

// serveOn is serve for a server that the test has altered.
func serveOn(t *testing.T, network string, s *Server) (address string) {
	t.Helper()
	address = "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "api.sock")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if open := s.conns.open.Load(); open != 0 {
			t.Errorf("%d connections are still open", open)
		}
		if f, ok := s.conns.locks.(*fakeLocks); ok {
			f.checkLedger(t)
		}
	})
	return l.Addr().String()
}
