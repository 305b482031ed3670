package locker_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// observed lets something happen in a world of one sidecar and returns what
// the observer was told.
func observed(t *testing.T, happen func(w *world, g *gate, s *sidecar)) (told *watched) {
	t.Helper()
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{MaxHeld: 2})
		happen(w, g, s)
		synctest.Wait()
		told = s.seen
	})
	return told
}

func wantCounts[K comparable](t *testing.T, what string, got, want map[K]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestEachOutcomeOfARequestIsCountedOnce(t *testing.T) {
	failing := func(err error) func(context.Context, locker.Claim) (locker.Grant, error) {
		return func(context.Context, locker.Claim) (locker.Grant, error) { return locker.Grant{}, err }
	}
	for result, happen := range map[locker.AcquireResult]func(w *world, g *gate, s *sidecar){
		locker.AcquireGranted: func(_ *world, _ *gate, s *sidecar) { s.take(owned("k", "w")) },
		locker.AcquireHeld: func(w *world, _ *gate, s *sidecar) {
			w.sidecar("b").take(owned("k", "w"))
			_ = s.tryTake(owned("k", "w"))
		},
		locker.AcquireConflict: func(w *world, _ *gate, s *sidecar) {
			w.store.Put("k", "forever", 0)
			_ = s.tryTake(owned("k", "w"))
		},
		locker.AcquireRefused: func(_ *world, _ *gate, s *sidecar) {
			s.Drain()
			_ = s.tryTake(owned("k", "w"))
		},
		locker.AcquireFailed: func(_ *world, g *gate, s *sidecar) {
			g.acquire = failing(errDown)
			_ = s.tryTake(owned("k", "w"))
		},
		locker.AcquireUnresolved: func(_ *world, g *gate, s *sidecar) {
			g.acquire = failing(errBroken)
			_ = s.tryTake(owned("k", "w"))
		},
		locker.AcquireCallerGone: func(_ *world, _ *gate, s *sidecar) {
			ctx, leave := context.WithCancel(context.Background())
			leave()
			_, _, _ = s.Acquire(ctx, owned("k", "w"))
		},
	} {
		told := observed(t, happen)
		wantCounts(t, string(result), told.acquired, map[locker.AcquireResult]int{result: 1})
	}

	told := observed(t, func(_ *world, _ *gate, s *sidecar) {
		s.take(owned("k", "w"))
		s.take(owned("k", "w"))
		s.take(owned("l", "w"))
		_ = s.tryTake(owned("m", "w"))                          // as many as may be
		_ = s.tryTake(locker.Request{Key: "k", TTL: time.Hour}) // held here
	})
	wantCounts(t, "a handful", told.acquired, map[locker.AcquireResult]int{
		locker.AcquireGranted: 2, locker.AcquireRepeated: 1, locker.AcquireRefused: 1, locker.AcquireHeld: 1,
	})
}

func TestEachOutcomeOfAReleaseIsCountedOnce(t *testing.T) {
	for result, happen := range map[locker.ReleaseResult]func(w *world, g *gate, s *sidecar){
		locker.ReleaseDone: func(_ *world, _ *gate, s *sidecar) {
			s.take(want("k", time.Minute))
			_ = s.release("k")
			_ = s.release("k")
		},
		locker.ReleaseGivenBack: func(_ *world, _ *gate, s *sidecar) { s.GiveBack(s.take(want("k", time.Minute)).ID) },
		locker.ReleaseNotOurs: func(w *world, _ *gate, s *sidecar) {
			s.take(want("k", time.Minute))
			w.store.Wipe()
			_ = s.release("k")
			_ = s.release("k")
		},
		locker.ReleaseUnconfirmed: func(w *world, g *gate, s *sidecar) {
			s.take(want("k", time.Minute))
			g.set(func(g *gate) { g.release = hangRelease })
			_ = s.release("k")
			_ = s.release("k")
			g.set(func(g *gate) { g.release = nil })
			w.pass(5 * time.Second)
			_ = s.release("k")
		},
		locker.ReleaseDropped: func(_ *world, _ *gate, s *sidecar) {
			s.take(want("k", time.Minute))
			s.shutDown(locker.ModeDrop)
		},
	} {
		told := observed(t, happen)
		wantCounts(t, string(result), told.released, map[locker.ReleaseResult]int{result: 1})
	}
}

func TestEachLossIsCountedOnceByItsCause(t *testing.T) {
	for cause, happen := range map[locker.Cause]func(w *world, g *gate, s *sidecar){
		locker.CauseExpired: func(w *world, g *gate, s *sidecar) {
			s.take(want("k", time.Second))
			g.set(func(g *gate) { g.renew = hangRenew })
			w.pass(2 * time.Second)
		},
		locker.CauseGone: func(w *world, _ *gate, s *sidecar) {
			s.take(want("k", time.Second))
			w.store.Wipe()
			w.pass(2 * time.Second)
		},
		locker.CauseTaken: func(w *world, _ *gate, s *sidecar) {
			s.take(want("k", time.Second))
			w.store.Put("k", "another's", time.Hour)
			w.pass(2 * time.Second)
		},
		locker.CauseMaxHold: func(w *world, _ *gate, s *sidecar) {
			r := want("k", time.Second)
			r.MaxHold = 3 * time.Second
			s.take(r)
			w.pass(4 * time.Second)
		},
	} {
		told := observed(t, func(w *world, g *gate, s *sidecar) {
			happen(w, g, s)
			for range 3 {
				_, _ = s.Get("k", locker.Handle{})
				s.List()
			}
			w.pass(time.Minute)
		})
		wantCounts(t, string(cause), told.lost, map[locker.Cause]int{cause: 1})
		if len(told.released) != 0 {
			t.Errorf("%s: also counted as released: %v", cause, told.released)
		}
	}
}

func TestEachOutcomeOfARenewalIsCountedOnce(t *testing.T) {
	told := observed(t, func(w *world, g *gate, s *sidecar) {
		s.take(want("k", 3*time.Second))
		w.pass(1500 * time.Millisecond)
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict {
				g.set(func(g *gate) { g.renew = nil })
				return all(len(r), errDown)
			}
		})
		w.pass(time.Second)
		w.store.Wipe()
		w.pass(2 * time.Second)
	})
	wantCounts(t, "one of each, and a repeated one", told.renewed, map[locker.RenewResult]int{
		locker.RenewOK: 2, locker.RenewFailed: 1, locker.RenewLost: 1,
	})
}

// TestALookAtALockIsNoRenewal, so that one which ends soon and as agreed does
// not count as renewed at the last moment.
func TestALookAtALockIsNoRenewal(t *testing.T) {
	for _, tt := range []struct {
		name           string
		change         func(*locker.Request)
		renewed, looks map[locker.RenewResult]int
	}{
		{"renew=false", func(r *locker.Request) { r.Renew = false }, map[locker.RenewResult]int{}, map[locker.RenewResult]int{locker.RenewOK: 2}},
		// The one renewal gives it all that it may have.
		{"max_hold", func(r *locker.Request) { r.MaxHold = r.TTL }, map[locker.RenewResult]int{locker.RenewOK: 1}, map[locker.RenewResult]int{locker.RenewOK: 2}},
	} {
		told := observed(t, func(w *world, _ *gate, s *sidecar) {
			r := want("k", 3*time.Second)
			tt.change(&r)
			s.take(r)
			w.pass(2500 * time.Millisecond)
		})
		wantCounts(t, tt.name+", renewals", told.renewed, tt.renewed)
		wantCounts(t, tt.name+", looks", told.verified, tt.looks)
	}
}

func TestOrphansAreCounted(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"without a TTL": 0, "beyond the greatest TTL": 48 * time.Hour} {
		told := observed(t, func(w *world, _ *gate, s *sidecar) {
			w.store.Put("k", "left behind", ttl)
			_ = s.tryTake(want("k", time.Minute))
		})
		if told.orphans != 1 {
			t.Errorf("%s: %d orphans, want 1", name, told.orphans)
		}
	}
	told := observed(t, func(w *world, _ *gate, s *sidecar) {
		w.store.Put("k", "left behind", 48*time.Hour)
		r := want("k", time.Minute)
		r.Wait = time.Minute
		_ = s.tryTake(r)
	})
	if told.orphans != 1 {
		t.Errorf("%d orphans met by one who waits, want 1", told.orphans)
	}
	told = observed(t, func(w *world, _ *gate, s *sidecar) {
		w.store.Put("k", "another library's", 24*time.Hour)
		if err := s.tryTake(want("k", time.Minute)); !errors.As(err, new(*locker.HeldError)) {
			t.Errorf("got %v", err)
		}
	})
	if told.orphans != 0 {
		t.Error("an ordinary lock is called an orphan")
	}
}
