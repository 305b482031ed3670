package locker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// heardEvent is an Event and when it was read.
type heardEvent struct {
	locker.Event
	at locker.Instant
}

// listener follows a grant and keeps what it is told.
type listener struct {
	w   *locker.Watch
	now func() locker.Instant

	mu    sync.Mutex
	heard []heardEvent
	over  error
}

// listen follows the grant until it is over or the test ends.
func (w *world) listen(s *sidecar, key locker.Key, h locker.Handle) *listener {
	w.t.Helper()
	watch, err := s.Watch(key, h)
	if err != nil {
		w.t.Fatalf("Watch(%q): %v", key, err)
	}
	ls := &listener{w: watch, now: w.now}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer watch.Close()
		for {
			e, err := watch.Next(ctx)
			ls.mu.Lock()
			if err != nil {
				ls.over = err
				ls.mu.Unlock()
				return
			}
			ls.heard = append(ls.heard, heardEvent{e, w.now()})
			ls.mu.Unlock()
		}
	})
	w.t.Cleanup(func() { cancel(); wg.Wait() })
	synctest.Wait()
	return ls
}

func (ls *listener) events() []heardEvent {
	synctest.Wait()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Clone(ls.heard)
}

// kinds lists what was told, such as "held renewed renewed lost".
func (ls *listener) kinds() string {
	var kinds []string
	for _, e := range ls.events() {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func (ls *listener) last() heardEvent {
	heard := ls.events()
	return heard[len(heard)-1]
}

// severed is a store to which renewals and releases can be cut off.
type severed struct {
	*memory.Backend
	cut atomic.Bool
}

func (s *severed) answers(n int, ask func() []locker.Verdict) []locker.Verdict {
	if !s.cut.Load() {
		return ask()
	}
	verdicts := make([]locker.Verdict, n)
	for i := range verdicts {
		verdicts[i].Err = &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true}
	}
	return verdicts
}

func (s *severed) Renew(ctx context.Context, r []locker.Renewal) []locker.Verdict {
	return s.answers(len(r), func() []locker.Verdict { return s.Backend.Renew(ctx, r) })
}

func (s *severed) Release(ctx context.Context, r []locker.Surrender) []locker.Verdict {
	return s.answers(len(r), func() []locker.Verdict { return s.Backend.Release(ctx, r) })
}

func binding(key locker.Key, ttl time.Duration) locker.Request {
	r := want(key, ttl)
	r.Bound = true
	return r
}

func TestAWatchTellsOfRenewalsTroubleAndTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		store := &severed{Backend: w.store}
		s := w.sidecarOn("a", store, locker.Config{})
		st := s.take(want("k", 9*time.Second))
		ls := w.listen(s, "k", locker.Handle{})
		w.pass(6500 * time.Millisecond) // two renewals
		if got := ls.kinds(); got != "held renewed renewed" {
			t.Fatalf("it told %s", got)
		}
		for i, e := range ls.events() {
			if e.Status.ValidFor <= 0 || e.Status.ValidUntil.Sub(e.at) != e.Status.ValidFor || e.Status.Fence != st.Fence {
				t.Errorf("event %d: %+v at %d", i, e.Status, e.at)
			}
		}
		store.cut.Store(true)
		w.pass(4 * time.Second)
		if got := ls.kinds(); got != "held renewed renewed at_risk" {
			t.Fatalf("with the store cut off it told %s", got)
		}
		store.cut.Store(false)
		w.pass(2 * time.Second)
		if got := ls.kinds(); got != "held renewed renewed at_risk held" {
			t.Fatalf("with the store back it told %s", got)
		}
		if err := s.release("k"); err != nil {
			t.Fatal(err)
		}
		if last := ls.last(); last.Kind != locker.EventReleased || last.Status.ValidFor != 0 || last.Status.State != "" {
			t.Errorf("at the end it told %+v", last)
		}
		if !errors.Is(ls.over, io.EOF) {
			t.Errorf("after the end: %v", ls.over)
		}
	})
}

func TestALossIsToldBeforeTheEndOfValidityAndIsFinal(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, 24 * time.Hour} {
		inWorld(t, func(w *world) {
			store := &severed{Backend: w.store}
			s := w.sidecarOn("a", store, locker.Config{})
			st := s.take(binding("k", ttl))
			ls := w.listen(s, "k", locker.Handle{})
			store.cut.Store(true)
			w.pass(ttl - locker.DriftMargin(ttl) - time.Nanosecond) // just before the end
			last := ls.last()
			lead := st.ValidUntil.Sub(last.at)
			if last.Kind != locker.EventLost || last.Lost.Cause != locker.CauseExpired || lead < 30*time.Millisecond || lead > 250*time.Millisecond {
				t.Fatalf("TTL %v: %s, %v before the end", ttl, ls.kinds(), lead)
			}
			if last.Status.ValidUntil != st.ValidUntil || last.Status.ValidFor != lead {
				t.Errorf("TTL %v: the loss leaves %v until %d, want %v until %d", ttl, last.Status.ValidFor, last.Status.ValidUntil, lead, st.ValidUntil)
			}
			store.cut.Store(false)
			var lost *locker.LostError
			if _, err := s.Get("k", locker.Handle{}); !errors.As(err, &lost) || *lost != *last.Lost {
				t.Errorf("TTL %v: Get says %v, want %v", ttl, err, last.Lost)
			}
			// Nobody gets it before the holder's validity has ended.
			other := w.sidecar("b")
			if err := other.tryTake(want("k", time.Second)); err == nil || w.now() >= st.ValidUntil {
				t.Errorf("TTL %v: another has it %v before the end", ttl, st.ValidUntil.Sub(w.now()))
			}
			w.pass(2 * time.Second) // the clean-up may have to be repeated
			other.take(want("k", time.Second))
		})
	}
}

func TestNobodyIsGivenUpEarlyWhomNobodyFollows(t *testing.T) {
	inWorld(t, func(w *world) {
		store := &severed{Backend: w.store}
		s := w.sidecarOn("a", store, locker.Config{})
		st := s.take(want("k", 10*time.Second))
		watch, err := s.Watch("k", locker.Handle{})
		if err != nil {
			t.Fatal(err)
		}
		watch.Close()
		store.cut.Store(true)
		w.pass(st.ValidUntil.Sub(w.now()) - 1)
		s.mustHold("k")
		w.pass(1)
		if _, err := s.Get("k", locker.Handle{}); err == nil {
			t.Error("it is held beyond its validity")
		}
	})
}

// A watch needs no watchdog: its reader finds out by itself.
func TestAWatchThatIsReadLateTellsOfTheLossFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(binding("k", 10*time.Second))
		watch, err := s.Watch("k", locker.Handle{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		if e, news, _ := watch.Look(); !news || e.Kind != locker.EventHeld {
			t.Fatalf("first %+v", e)
		}
		s.stop() // no renewal and no watchdog from here on
		if _, news, again := watch.Look(); news || again <= w.now() || again > st.ValidUntil {
			t.Fatalf("next look at %d of %d", again, st.ValidUntil)
		}
		s.skew.add(time.Minute) // the machine was suspended
		e, news, again := watch.Look()
		if !news || e.Kind != locker.EventLost || e.Lost.Cause != locker.CauseExpired || e.Status.ValidFor != 0 {
			t.Errorf("after waking it tells %+v", e)
		}
		if _, news, again2 := watch.Look(); news || again != 0 || again2 != 0 {
			t.Error("it goes on after the end")
		}
	})
}

func TestASlowReaderIsToldTheLatestAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 3*time.Second))
		watch, err := s.Watch("k", locker.Handle{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		w.pass(10 * time.Minute)
		var kinds []locker.EventKind
		for {
			e, news, _ := watch.Look()
			if !news {
				break
			}
			if e.Status.ValidUntil != s.mustHold("k").ValidUntil {
				t.Error("an event is out of date")
			}
			kinds = append(kinds, e.Kind)
		}
		if len(kinds) != 1 || kinds[0] != locker.EventHeld {
			t.Errorf("after ten minutes it is told %v", kinds)
		}
		w.pass(10 * time.Minute)
		if e, _, _ := watch.Look(); e.Kind != locker.EventRenewed {
			t.Errorf("after ten more, %v", e.Kind)
		}
		if _, news, _ := watch.Look(); news {
			t.Error("renewals have queued up")
		}
	})
}

func TestLossIsToldWithItsCause(t *testing.T) {
	for cause, lose := range map[locker.Cause]func(*world, *sidecar){
		locker.CauseGone:    func(w *world, _ *sidecar) { w.store.Delete("k") },
		locker.CauseTaken:   func(w *world, _ *sidecar) { w.store.Delete("k"); w.sidecar("b").take(want("k", time.Minute)) },
		locker.CauseMaxHold: func(*world, *sidecar) {},
		locker.CauseRevoked: func(_ *world, s *sidecar) {
			_ = s.Release(context.Background(), "k", locker.Handle{}, locker.ReleaseOptions{Force: true})
		},
		locker.CauseShutdown: func(_ *world, s *sidecar) { s.shutDown(locker.ModeDrop) },
	} {
		t.Run(string(cause), func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.sidecar("a")
				r := binding("k", 6*time.Second)
				r.Owner = "w1"
				if cause == locker.CauseMaxHold {
					r.MaxHold = 7 * time.Second
				}
				st := s.take(r)
				ls := w.listen(s, "k", locker.Handle{})
				lose(w, s)
				w.pass(8 * time.Second)
				last := ls.last()
				if last.Kind != locker.EventLost || last.Lost.Cause != cause || last.Lost.Fence != st.Fence {
					t.Fatalf("it told %s, at last %+v", ls.kinds(), last.Lost)
				}
				early := cause == locker.CauseMaxHold
				if (last.Status.ValidFor > 0) != early {
					t.Errorf("nobody else can have it for %v", last.Status.ValidFor)
				}
				var lost *locker.LostError
				if _, err := s.Get("k", locker.Handle{Fence: st.Fence}); !errors.As(err, &lost) || lost.Cause != cause {
					t.Errorf("Get says %v", err)
				}
			})
		})
	}
}

func TestDrainingIsToldOnceAndTheLockGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(binding("k", 3*time.Second))
		ls := w.listen(s, "k", locker.Handle{})
		s.Drain()
		s.Refuse()
		w.pass(1500 * time.Millisecond)
		if got := ls.kinds(); got != "held draining renewed" {
			t.Errorf("it told %s", got)
		}
		late := w.listen(s, "k", locker.Handle{})
		if got := late.kinds(); got != "held draining" {
			t.Errorf("one who comes later is told %s", got)
		}
	})
}

// mute is a reader that takes the last event and is slow to pass it on.
func (w *world) mute(s *sidecar, id locker.GrantID) (watch *locker.Watch, changed chan struct{}) {
	w.t.Helper()
	changed = make(chan struct{}, 100)
	watch, err := s.Follow(id, func() { changed <- struct{}{} })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(watch.Close)
	watch.Look()
	return watch, changed
}

func TestThoseWhoFollowALockAreToldOfEachChangeWhenItComes(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 3*time.Second))
		watch, changed := w.mute(s, st.ID)
		w.pass(1100 * time.Millisecond)
		select {
		case <-changed:
		default:
			t.Error("nothing was told of the renewal")
		}
		if e, news, _ := watch.Look(); !news || e.Kind != locker.EventRenewed {
			t.Errorf("got %v %v", e.Kind, news)
		}
	})
}

func TestALockIsNotFreedBeforeItsHolderHasHeard(t *testing.T) {
	for name, end := range map[string]func(*sidecar){
		"force": func(s *sidecar) {
			_ = s.Release(context.Background(), "k", locker.Handle{}, locker.ReleaseOptions{Force: true})
		},
		"without a handle": func(s *sidecar) { _ = s.release("k") },
		"all":              func(s *sidecar) { s.ReleaseWhere(context.Background(), "", true) },
		"shutdown": func(s *sidecar) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s.Shutdown(ctx, locker.ModeDrop, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, passesOn := range []bool{true, false} {
				inWorld(t, func(w *world) {
					s, other := w.sidecar("a"), w.sidecar("b")
					watch, _ := w.mute(s, s.take(binding("k", 30*time.Second)).ID)
					began := w.now()
					var done sync.WaitGroup
					done.Go(func() { end(s) })
					w.pass(time.Millisecond)
					if e, news, _ := watch.Look(); !news || e.Kind != locker.EventLost && e.Kind != locker.EventReleased {
						t.Fatalf("it is told %+v", e)
					}
					var held *locker.HeldError
					if err := other.tryTake(want("k", time.Second)); !errors.As(err, &held) {
						t.Fatalf("before it was passed on, another: %v", err)
					}
					if passesOn {
						watch.Look()
					}
					done.Wait()
					other.take(want("k", time.Second))
					if took := w.now().Sub(began); took > 150*time.Millisecond || (took > 20*time.Millisecond) == passesOn {
						t.Errorf("free after %v, though it was passed on: %v", took, passesOn)
					}
				})
			}
		})
	}
}

func TestAReleaseByItsHolderWaitsForNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := binding("k", 30*time.Second)
		r.Owner = "w1"
		w.mute(s, s.take(r).ID)
		began := w.now()
		if err := s.Release(context.Background(), "k", locker.Handle{Owner: "w1"}, locker.ReleaseOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		s.take(r)
		s.ReleaseWhere(context.Background(), "w1", false)
		if took := w.now().Sub(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWhatAShutdownLeavesIsToldAndNotReleased(t *testing.T) {
	for _, mode := range []locker.ReleaseMode{locker.ModeGuarded, locker.ModeRelease} {
		inWorld(t, func(w *world) {
			s, other := w.sidecar("a"), w.sidecar("b")
			st := s.take(binding("k", 30*time.Second))
			ls := w.listen(s, "k", locker.Handle{})
			if counts := s.shutDown(mode); counts != (locker.Counts{Left: 1}) {
				t.Errorf("%s: %+v", mode, counts)
			}
			last := ls.last()
			if ls.kinds() != "held draining lost" || last.Lost.Cause != locker.CauseShutdown || last.Status.ValidUntil != st.ValidUntil {
				t.Errorf("%s: it told %s, valid until %d of %d", mode, ls.kinds(), last.Status.ValidUntil, st.ValidUntil)
			}
			s.Unbind(st.ID, locker.Left) // the process closes its connections
			w.pass(time.Second)
			var held *locker.HeldError
			if err := other.tryTake(want("k", time.Second)); !errors.As(err, &held) {
				t.Errorf("%s: another: %v", mode, err)
			}
		})
	}
}

func TestWatchesOfAGrantThatIsNotHeldAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		if _, err := s.Watch("k", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("of no lock: %v", err)
		}
		st := s.take(owned("k", "w1"))
		if _, err := s.Watch("k", locker.Handle{Owner: "w2"}); !errors.Is(err, locker.ErrOwnerMismatch) {
			t.Errorf("of another's: %v", err)
		}
		w.store.Delete("k")
		w.pass(st.TTL)
		var lost *locker.LostError
		if _, err := s.Watch("k", locker.Handle{}); !errors.As(err, &lost) {
			t.Errorf("of a lost one: %v", err)
		}
		if _, err := s.Follow(st.ID, func() {}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("by its ID: %v", err)
		}
	})
}

func TestTheEndOfAContextEndsOneNextAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", time.Minute))
		watch, err := s.Watch("k", locker.Handle{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if e, err := watch.Next(ctx); err != nil || e.Kind != locker.EventHeld {
			t.Fatalf("%+v, %v", e, err)
		}
		if _, err := watch.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if e, err := watch.Next(context.Background()); err != nil || e.Kind != locker.EventRenewed {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

func TestManyWatchesOfOneGrantAreAllTold(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 3*time.Second))
		var all []*listener
		for range 50 {
			all = append(all, w.listen(s, "k", locker.Handle{}))
		}
		w.pass(1500 * time.Millisecond)
		if err := s.release("k"); err != nil {
			t.Fatal(err)
		}
		for i, ls := range all {
			if got := ls.kinds(); got != "held renewed released" {
				t.Errorf("listener %d was told %s", i, got)
			}
		}
		if n := s.Residue(); n != 0 {
			t.Error(fmt.Sprint(n, " things are left"))
		}
	})
}

func TestTheFirstEventSaysHeldAlsoOfALockAtRisk(t *testing.T) {
	inWorld(t, func(w *world) {
		store := &severed{Backend: w.store}
		s := w.sidecarOn("a", store, locker.Config{})
		s.take(want("k", 9*time.Second))
		store.cut.Store(true)
		w.pass(5 * time.Second)
		ls := w.listen(s, "k", locker.Handle{})
		if got := ls.kinds(); got != "held at_risk" || ls.events()[0].Status.State != locker.StateAtRisk {
			t.Errorf("it is told %s", got)
		}
	})
}

func TestThoseWhoFollowABoundLockAreToldWhenItsConnectionEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		for _, end := range []func(locker.GrantID){
			func(id locker.GrantID) { s.Unbind(id, locker.Left) }, func(id locker.GrantID) { s.Unbind(id, locker.LeftUntold) },
		} {
			st := s.take(binding("k", 30*time.Second))
			ls := w.listen(s, "k", locker.Handle{})
			end(st.ID)
			if got := ls.kinds(); got != "held released" {
				t.Errorf("it is told %s", got)
			}
		}
	})
}
