package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestARenewalThatTheWatchdogAsksForTooLateIsNotSent(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 3*time.Second))
		s.skew.add(st.ValidFor) // the process was stopped just before it would have renewed
		s.Renew(context.Background(), []locker.GrantID{st.ID})
		if n := g.called("renew"); n != 0 {
			t.Errorf("%d renewals were sent for a lease that is over", n)
		}
		if s.seen.lost[locker.CauseExpired] != 1 {
			t.Errorf("losses told: %v, want one by expiry", s.seen.lost)
		}
	})
}

func TestARenewalIsSentOnceThoughTheWatchdogAsksTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, renew: hangRenew}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 3*time.Second))
		for range 2 {
			go s.Renew(context.Background(), []locker.GrantID{st.ID, st.ID, st.ID + 1})
		}
		w.pass(storeTimeout / 2)
		if n := g.called("renew"); n != 1 {
			t.Errorf("%d renewals are on their way, want 1", n)
		}
		w.pass(storeTimeout)
	})
}

func TestALeaseThatIsValidIsNotEndedByAnEarlyWatchdog(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(want("k", 3*time.Second))
		s.Expire([]locker.GrantID{st.ID, st.ID + 1})
		w.pass(time.Minute)
		s.mustHold("k")
	})
}

func TestARenewalAnsweredAfterTheLeaseHasEndedDoesNotReviveIt(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 3*time.Second))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict { return all(len(r), errDown) }
		})
		w.pass(2500 * time.Millisecond)
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				verdicts := w.store.Renew(ctx, r)
				s.skew.add(time.Second) // suspended, and the answer waits in the socket
				return verdicts
			}
		})
		w.pass(250 * time.Millisecond)
		if s.Holds("k") {
			t.Error("a lost lock is held again")
		}
		if s.seen.lost[locker.CauseExpired] != 1 {
			t.Errorf("losses told: %v, want one by expiry", s.seen.lost)
		}
	})
}
