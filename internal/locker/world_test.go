package locker_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

// storeTimeout is that of all sidecars in these tests.
const storeTimeout = 300 * time.Millisecond

// world is one store and the sidecars before it, in virtual time.
type world struct {
	t     *testing.T
	store *memory.Backend
	start time.Time
}

// inWorld runs the test in a bubble, with one empty store.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now()}
		w.store = memory.New(memory.Config{Now: w.now, Wall: time.Now})
		test(w)
	})
}

// now is the boot clock of the machine on which all sidecars run.
func (w *world) now() locker.Instant {
	return locker.Instant(time.Hour) + locker.Instant(time.Since(w.start))
}

// pass lets time pass, and all that was due by then come to rest.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sidecar is a running Locker and its watchdog.
type sidecar struct {
	*locker.Locker
	t    *testing.T
	log  *safeBuffer
	stop func()
	skew *skew // of its clock
	seen *watched

	journal  locker.Journal
	restored locker.Restored // of what the journal held
}

type skew struct {
	mu sync.Mutex
	by time.Duration
}

func (s *skew) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by += d
}

func (s *skew) get() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by
}

// sidecar starts one on the store.
func (w *world) sidecar(name string) *sidecar { return w.sidecarOn(name, w.store, locker.Config{}) }

// sidecarOn starts one on a backend, usually the store behind some fault.
func (w *world) sidecarOn(name string, backend locker.Backend, cfg locker.Config) *sidecar {
	w.t.Helper()
	s := &sidecar{t: w.t, log: new(safeBuffer), skew: new(skew), seen: newWatched()}
	cfg.Holder, cfg.StoreTimeout = name, storeTimeout
	cfg.Now = func() locker.Instant { return w.now().Add(s.skew.get()) }
	cfg.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Observer = s.seen
	dog := renewer.New(cfg.Now)
	l, err := locker.New(cfg, backend, dog)
	if err != nil {
		w.t.Fatal(err)
	}
	s.Locker, s.journal = l, cfg.Journal
	if book, ok := cfg.Journal.(*notebook); ok {
		if s.restored, err = l.Restore(book.saved()); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { dog.Run(ctx, l) })
	wg.Go(func() { l.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	w.t.Cleanup(s.stop)
	return s
}

// want returns a request for a renewed lock.
func want(key locker.Key, ttl time.Duration) locker.Request {
	return locker.Request{Key: key, TTL: ttl, Renew: true}
}

// take acquires, and fails the test if that is not granted.
func (s *sidecar) take(r locker.Request) locker.Status {
	s.t.Helper()
	st, _, err := s.Acquire(context.Background(), r)
	if err != nil {
		s.t.Fatalf("Acquire(%q): %v", r.Key, err)
	}
	return st
}

func (s *sidecar) tryTake(r locker.Request) error {
	_, _, err := s.Acquire(context.Background(), r)
	return err
}

func (s *sidecar) release(key locker.Key) error {
	return s.Release(context.Background(), key, locker.Handle{}, locker.ReleaseOptions{})
}

// holds fails the test unless the sidecar says that it holds the lock.
func (s *sidecar) mustHold(key locker.Key) locker.Status {
	s.t.Helper()
	st, err := s.Get(key, locker.Handle{})
	if err != nil {
		s.t.Fatalf("Get(%q): %v", key, err)
	}
	return st
}

type safeBuffer struct {
	mu    sync.Mutex
	b     bytes.Buffer
	block atomic.Pointer[chan struct{}] // takes nothing until this is closed
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	if block := b.block.Load(); block != nil {
		<-*block
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *safeBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = bytes.Buffer{}
}

// watched is an observer that counts.
type watched struct {
	mu                    sync.Mutex
	acquired              map[locker.AcquireResult]int
	released              map[locker.ReleaseResult]int
	lost                  map[locker.Cause]int
	renewed, verified     map[locker.RenewResult]int
	orphans               int
	woken, polled, handed int
	steps                 []time.Duration
}

func newWatched() *watched {
	return &watched{
		acquired: make(map[locker.AcquireResult]int), released: make(map[locker.ReleaseResult]int),
		lost: make(map[locker.Cause]int), renewed: make(map[locker.RenewResult]int), verified: make(map[locker.RenewResult]int),
	}
}

func (w *watched) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *watched) releases(r locker.ReleaseResult) (n int) {
	w.do(func() { n = w.released[r] })
	return n
}

func (w *watched) Acquired(r locker.AcquireResult, _ time.Duration) { w.do(func() { w.acquired[r]++ }) }
func (w *watched) Released(r locker.ReleaseResult, _ time.Duration) { w.do(func() { w.released[r]++ }) }
func (w *watched) Lost(c locker.Cause, _ time.Duration)             { w.do(func() { w.lost[c]++ }) }
func (w *watched) Renewed(r locker.RenewResult, _ time.Duration)    { w.do(func() { w.renewed[r]++ }) }
func (w *watched) Verified(r locker.RenewResult)                    { w.do(func() { w.verified[r]++ }) }
func (w *watched) Orphan()                                          { w.do(func() { w.orphans++ }) }
func (w *watched) WokenUp()                                         { w.do(func() { w.woken++ }) }
func (w *watched) Polled()                                          { w.do(func() { w.polled++ }) }
func (w *watched) HandedOver(time.Duration)                         { w.do(func() { w.handed++ }) }
func (w *watched) ClockStep(d time.Duration)                        { w.do(func() { w.steps = append(w.steps, d) }) }

// gate is a backend whose answers a test decides, call by call; the zero gate
// lets everything through.
type gate struct {
	locker.Backend
	mu      sync.Mutex
	acquire func(context.Context, locker.Claim) (locker.Grant, error)
	renew   func(context.Context, []locker.Renewal) []locker.Verdict
	release func(context.Context, []locker.Surrender) []locker.Verdict
	calls   map[string]int
}

func (g *gate) count(op string) {
	if g.calls == nil {
		g.calls = make(map[string]int)
	}
	g.calls[op]++
}

func (g *gate) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	g.mu.Lock()
	f := g.acquire
	g.count("acquire")
	g.mu.Unlock()
	if f == nil {
		f = g.Backend.Acquire
	}
	return f(ctx, c)
}

func (g *gate) Renew(ctx context.Context, r []locker.Renewal) []locker.Verdict {
	g.mu.Lock()
	f := g.renew
	g.count("renew")
	g.mu.Unlock()
	if f == nil {
		f = g.Backend.Renew
	}
	return f(ctx, r)
}

func (g *gate) Release(ctx context.Context, s []locker.Surrender) []locker.Verdict {
	g.mu.Lock()
	f := g.release
	g.count("release")
	g.mu.Unlock()
	if f == nil {
		f = g.Backend.Release
	}
	return f(ctx, s)
}

// set changes what the gate does from now on.
func (g *gate) set(change func(*gate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

func (g *gate) called(op string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[op]
}

// hang answers nothing until the caller gives up, and does nothing.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return &locker.StoreError{Reason: locker.StoreTimeout, Err: ctx.Err()}
}

func hangAcquire(ctx context.Context, _ locker.Claim) (locker.Grant, error) {
	return locker.Grant{}, hang(ctx)
}

func hangRenew(ctx context.Context, r []locker.Renewal) []locker.Verdict {
	return all(len(r), hang(ctx))
}

func hangRelease(ctx context.Context, s []locker.Surrender) []locker.Verdict {
	return all(len(s), hang(ctx))
}

func all(n int, err error) []locker.Verdict {
	verdicts := make([]locker.Verdict, n)
	for i := range verdicts {
		verdicts[i].Err = err
	}
	return verdicts
}

var errDown = &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true}
