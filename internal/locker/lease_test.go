package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestAHeldLockIsRenewedForAsLongAsTheSidecarRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		first := s.take(want("k", 3*time.Second))
		for range 100 {
			w.pass(time.Second)
			st := s.mustHold("k")
			if st.State != locker.StateHeld || st.Fence != first.Fence {
				t.Fatalf("got state %s with fence %d, want held with %d", st.State, st.Fence, first.Fence)
			}
		}
		// About three renewals per TTL, neither a storm nor a gap.
		if n := s.mustHold("k").Renewals; n < 95 || n > 120 {
			t.Errorf("%d renewals in 100 s at a TTL of 3 s, want about 100", n)
		}
		if err := w.sidecar("b").tryTake(want("k", 3*time.Second)); !errors.As(err, new(*locker.HeldError)) {
			t.Errorf("another sidecar got %v, want HeldError", err)
		}
	})
}

func TestValidityCountsFromBeforeTheRequestWasSent(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			answer, err := w.store.Acquire(ctx, c)
			time.Sleep(200 * time.Millisecond) // the reply is slow
			return answer, err
		}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 2*time.Second))
		_, left, _ := w.store.Value("k")
		if st.ValidFor > left || st.ValidFor != 2*time.Second-200*time.Millisecond-locker.DriftMargin(2*time.Second) {
			t.Errorf("valid for %v while the store keeps the key for %v", st.ValidFor, left)
		}
	})
}

func TestAGrantWhoseValidityIsUsedUpIsNotReported(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			answer, err := w.store.Acquire(ctx, c)
			s.skew.add(5 * time.Second) // suspended, and the answer waits in the socket
			return answer, err
		}
		if err := s.tryTake(want("k", time.Second)); !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Errorf("got %v, want ErrAcquireUnresolved", err)
		}
		synctest.Wait()
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
	})
}

func TestALeaseThatCannotBeRenewedIsAtRiskThenLostBeforeTheStoreFreesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 9*time.Second))
		g.set(func(g *gate) { g.renew = hangRenew })
		w.pass(3*time.Second + storeTimeout + time.Millisecond)
		if got := s.mustHold("k").State; got != locker.StateAtRisk {
			t.Errorf("after a failed renewal the state is %s, want at_risk", got)
		}
		g.set(func(g *gate) { g.release = hangRelease })
		w.pass(st.ValidUntil.Sub(w.now()) - 1)
		s.mustHold("k")
		w.pass(1)
		_, err := s.Get("k", locker.Handle{})
		var lost *locker.LostError
		if !errors.As(err, &lost) || lost.Cause != locker.CauseExpired || lost.Fence != st.Fence {
			t.Fatalf("at the deadline: %v, want lost by expiry", err)
		}
		if _, _, taken := w.store.Value("k"); !taken {
			t.Error("the store had freed the key before the loss was told")
		}
	})
}

func TestLossIsToldByTheWatchdogThoughNobodyAsks(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 3*time.Second))
		g.set(func(g *gate) { g.renew = hangRenew })
		w.pass(3 * time.Second)
		synctest.Wait()
		if s.seen.lost[locker.CauseExpired] != 1 {
			t.Errorf("losses told: %v, want one by expiry", s.seen.lost)
		}
		if n := strings.Count(s.log.String(), "lock lost"); n != 1 {
			t.Errorf("%d log lines tell of the loss, want 1:\n%s", n, s.log)
		}
	})
}

func TestATransientFailureOfRenewalsLosesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 9*time.Second))
		g.set(func(g *gate) { g.renew = hangRenew })
		w.pass(7 * time.Second)
		g.set(func(g *gate) { g.renew = nil })
		for range 60 {
			w.pass(time.Second)
			s.mustHold("k")
		}
		if got := s.mustHold("k").State; got != locker.StateHeld {
			t.Errorf("after recovery the state is %s, want held", got)
		}
	})
}

func TestAVanishedKeyIsLostWithinAThirdOfTheTTLAndNeverMadeAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 3*time.Second))
		w.pass(500 * time.Millisecond)
		w.store.Wipe()
		w.pass(time.Second)
		_, err := s.Get("k", locker.Handle{})
		var lost *locker.LostError
		if !errors.As(err, &lost) || lost.Cause != locker.CauseGone {
			t.Fatalf("got %v, want lost, gone", err)
		}
		w.pass(time.Minute)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key was made again")
		}
	})
}

func TestAKeyThatCarriesAnotherTokenIsLostAndLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 3*time.Second))
		w.store.Put("k", "somebody else", time.Minute)
		w.pass(time.Second)
		_, err := s.Get("k", locker.Handle{})
		var lost *locker.LostError
		if !errors.As(err, &lost) || lost.Cause != locker.CauseTaken {
			t.Fatalf("got %v, want lost, taken", err)
		}
		w.pass(30 * time.Second)
		if value, left, _ := w.store.Value("k"); value != "somebody else" || left != 29*time.Second {
			t.Errorf("the other's key is %q for %v, want it untouched", value, left)
		}
	})
}

func TestASuspendedMachineAnswersLostToTheFirstQuestion(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 30*time.Second))
		before := g.called("renew")
		s.skew.add(time.Minute) // boot time moves, Go's timers do not
		if _, err := s.Get("k", locker.Handle{}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("Get: %v, want lost", err)
		}
		if s.Holds("k") || s.Stats().Held != 0 {
			t.Error("the lock still counts as held")
		}
		w.pass(10 * time.Second)
		if g.called("renew") != before {
			t.Error("a renewal was sent for a lost lock")
		}
	})
}

func TestNoRenewalIsSentAfterTheEndOfValidity(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 2*time.Second))
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				for _, one := range r {
					if w.now() >= st.ValidUntil || one.NotAfter > st.ValidUntil {
						t.Errorf("a renewal may be executed until %v after the end", one.NotAfter.Sub(st.ValidUntil))
					}
				}
				return hangRenew(ctx, r)
			}
		})
		w.pass(10 * time.Second)
	})
}

func TestAnUnrenewedLockIsVerifiedAndEndsAfterItsTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := want("k", 3*time.Second)
		r.Renew = false
		s.take(r)
		w.pass(2900 * time.Millisecond)
		if st := s.mustHold("k"); st.State != locker.StateHeld || st.Renewals != 0 {
			t.Errorf("state %s after %d renewals, want held after none", st.State, st.Renewals)
		}
		w.pass(100 * time.Millisecond)
		if s.Holds("k") {
			t.Error("held beyond its TTL")
		}

		s.take(r)
		w.store.Wipe()
		w.pass(time.Second)
		if s.Holds("k") {
			t.Error("its loss was not noticed by verifying")
		}
	})
}

func TestAHeartbeatExtendsAnUnrenewedLock(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := want("k", 3*time.Second)
		r.Renew = false
		st := s.take(r)
		for range 20 {
			w.pass(2 * time.Second)
			if _, err := s.Extend(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.Changes{}); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(3 * time.Second)
		if s.Holds("k") {
			t.Error("held without a heartbeat")
		}
	})
}

func TestMaxHoldEndsTheLockAndFreesTheKeyAtOnce(t *testing.T) {
	for _, ttl := range []time.Duration{3 * time.Second, 30 * time.Second} {
		inWorld(t, func(w *world) {
			s := w.sidecar("a")
			r := want("k", ttl)
			r.MaxHold = 10 * time.Second
			st := s.take(r)
			asked := w.now()
			w.pass(9800 * time.Millisecond)
			s.mustHold("k")
			if _, left, _ := w.store.Value("k"); left > 200*time.Millisecond {
				t.Errorf("the store keeps the key %v beyond the maximum hold", left-200*time.Millisecond)
			}
			w.pass(asked.Add(r.MaxHold).Sub(w.now()))
			_, err := s.Get("k", locker.Handle{Fence: st.Fence})
			var lost *locker.LostError
			if !errors.As(err, &lost) || lost.Cause != locker.CauseMaxHold {
				t.Fatalf("got %v, want lost by max_hold", err)
			}
			w.sidecar("b").take(want("k", ttl))
		})
	}
}

func TestMinHoldKeepsTheKeyTakenAfterAnEarlyRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.sidecar("a"), w.sidecar("b")
		r := want("k", 2*time.Second)
		r.MinHold = time.Minute
		a.take(r)
		w.pass(10 * time.Second) // through some renewals, none of which may shorten it
		if _, left, _ := w.store.Value("k"); left < 50*time.Second {
			t.Errorf("a renewal left the key only %v", left)
		}
		if err := a.release("k"); err != nil {
			t.Fatal(err)
		}
		w.pass(49 * time.Second)
		var held *locker.HeldError
		if err := b.tryTake(r); !errors.As(err, &held) || held.State != locker.OccupancyMinHold {
			t.Fatalf("got %v, want held by the minimum hold", err)
		}
		w.pass(time.Second)
		b.take(r)
		if err := b.Release(context.Background(), "k", locker.Handle{}, locker.ReleaseOptions{SkipMinHold: true}); err != nil {
			t.Fatal(err)
		}
		a.take(r)
	})
}

func TestANewGrantSharesNothingWithALostOne(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		old := s.take(want("k", time.Second))
		w.store.Wipe()
		w.pass(time.Second)
		fresh := s.take(want("k", time.Second))
		if fresh.Fence <= old.Fence {
			t.Errorf("fence fell from %d to %d", old.Fence, fresh.Fence)
		}
		w.pass(30 * time.Second)
		s.mustHold("k")
		if _, err := s.Get("k", locker.Handle{Fence: old.Fence}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("the old grant's handle: %v, want lost", err)
		}
		if st, err := s.Get("k", locker.Handle{Fence: fresh.Fence}); err != nil || st.ID == old.ID {
			t.Errorf("the new grant's handle: %v", err)
		}
	})
}

func TestAGrantEndsAnEarlierOneThatTheStoreHasForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		old := s.take(locker.Request{Key: "k", Owner: "one", TTL: 30 * time.Second, Renew: true})
		w.store.Wipe()
		// The sidecar itself cannot know yet and answers for the first owner.
		if err := s.tryTake(want("k", 30*time.Second)); !errors.As(err, new(*locker.HeldError)) {
			t.Fatalf("got %v, want HeldError", err)
		}
		b := w.sidecar("b")
		b.take(want("k", 30*time.Second))
		w.pass(10 * time.Second)
		if _, err := s.Get("k", locker.Handle{Fence: old.Fence}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("got %v, want lost", err)
		}
		b.mustHold("k")
	})
}

func TestAJumpOfTheStoresClockHasAllLocksRenewedAtOnceAndIsToldOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("short", 3*time.Second))
		s.take(want("long", time.Hour))
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				verdicts := w.store.Renew(ctx, r)
				verdicts[0].Step = time.Second
				g.set(func(g *gate) { g.renew = hangRenew })
				return verdicts
			}
		})
		w.pass(time.Second)
		if got := s.mustHold("long").State; got != locker.StateAtRisk {
			t.Errorf("a lock whose expiry may have moved is %s, want at_risk", got)
		}
		g.set(func(g *gate) { g.renew = nil })
		w.pass(2 * time.Second)
		if st := s.mustHold("long"); st.State != locker.StateHeld || st.Renewals != 1 {
			t.Errorf("soon after it is %s after %d renewals, want held after one", st.State, st.Renewals)
		}
		if len(s.seen.steps) != 1 {
			t.Errorf("steps told: %v", s.seen.steps)
		}
	})
}

// Another server has taken the place of one, and has not all that was granted.
func TestLocksInDoubtAreAskedAboutSoon(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		verified := want("verified", 30*time.Second)
		verified.Renew = false
		for _, r := range []locker.Request{want("kept", 30*time.Second), want("forgotten", 30*time.Second), verified} {
			s.take(r)
		}
		w.pass(time.Second)
		w.store.Delete("forgotten")
		s.Doubt()
		for _, key := range []locker.Key{"kept", "forgotten", "verified"} {
			if st := s.mustHold(key); st.State != locker.StateAtRisk {
				t.Errorf("%s is %s while it is in doubt", key, st.State)
			}
		}
		w.pass(time.Second + 50*time.Millisecond)
		for _, key := range []locker.Key{"kept", "verified"} {
			if st := s.mustHold(key); st.State != locker.StateHeld {
				t.Errorf("%s is %s, want held", key, st.State)
			}
		}
		_, err := s.Get("forgotten", locker.Handle{})
		var lost *locker.LostError
		if !errors.As(err, &lost) || lost.Cause != locker.CauseGone {
			t.Errorf("got %v, want lost, gone", err)
		}
	})
}

// An answer that was on its way when the doubt came says nothing of the server
// that decides now.
func TestAnAnswerFromBeforeADoubtDoesNotEndIt(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		slow := func() { time.Sleep(storeTimeout / 2) }
		s.take(want("renewed", 30*time.Second))
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				defer slow()
				return w.store.Renew(ctx, r)
			}
			g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
				defer slow()
				return w.store.Acquire(ctx, c)
			}
		})
		for g.called("renew") == 0 {
			w.pass(time.Millisecond)
		}
		go func() {
			if st := s.take(want("granted", 30*time.Second)); st.State != locker.StateHeld {
				t.Errorf("it is granted as %v", st.State)
			}
		}()
		w.pass(time.Millisecond)
		s.Doubt()
		w.store.Delete("renewed")
		w.store.Delete("granted")
		w.pass(storeTimeout + time.Second + storeTimeout)
		for _, key := range []locker.Key{"renewed", "granted"} {
			if _, err := s.Get(key, locker.Handle{}); !errors.As(err, new(*locker.LostError)) {
				t.Errorf("%s: got %v, want lost", key, err)
			}
		}
	})
}
