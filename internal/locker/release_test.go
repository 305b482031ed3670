package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestARepeatedReleaseIsToldItsOutcomeThoughAnotherWorkerHoldsTheLockByNow(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			g.set(func(g *gate) { g.acquire = nil })
			time.Sleep(250 * time.Millisecond)
			return locker.Grant{}, errBroken // may be executed yet, so the release is asked once more later
		}
		old := s.take(owned("k", "w1"))
		g.set(func(g *gate) {
			g.release = func(_ context.Context, r []locker.Surrender) []locker.Verdict {
				g.set(func(g *gate) { g.release = nil })
				return all(len(r), errBroken)
			}
		})
		mine := locker.Handle{Fence: old.Fence}
		if err := s.Release(context.Background(), "k", mine, locker.ReleaseOptions{}); !errors.As(err, new(*locker.UnconfirmedError)) {
			t.Fatalf("got %v, want unconfirmed", err)
		}
		s.take(owned("k", "w2"))
		if err := s.Release(context.Background(), "k", mine, locker.ReleaseOptions{}); err != nil {
			t.Errorf("the repeated release: %v, want released", err)
		}
		if err := s.Release(context.Background(), "k", mine, locker.ReleaseOptions{}); !errors.Is(err, locker.ErrOwnerMismatch) {
			t.Errorf("once told: %v, want ErrOwnerMismatch", err)
		}
		s.mustHold("k")
	})
}

func TestAReleaseIsCarriedOutThoughItsCallerHasGone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", time.Minute))
		ctx, leave := context.WithCancel(context.Background())
		leave()
		if err := s.Release(ctx, "k", locker.Handle{}, locker.ReleaseOptions{}); err != nil {
			t.Errorf("got %v, want released", err)
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
	})
}

func TestAReleaseThatReachesTheStoreAfterTheLeaseHasEndedIsNoLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", time.Second)
		r.Renew = false
		s.take(r)
		g.set(func(g *gate) {
			g.release = func(ctx context.Context, r []locker.Surrender) []locker.Verdict {
				time.Sleep(200 * time.Millisecond)
				return w.store.Release(ctx, r)
			}
		})
		w.pass(900 * time.Millisecond)
		if err := s.release("k"); err != nil {
			t.Errorf("got %v, want released", err)
		}
		if len(s.seen.lost) != 0 {
			t.Errorf("losses told: %v", s.seen.lost)
		}
	})
}

func TestTheMinimumHoldOutlivesTheLossOfTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		a, b := w.sidecarOn("a", g, locker.Config{}), w.sidecar("b")
		r := want("cron", 2*time.Second)
		r.MinHold = time.Minute
		a.take(r)
		g.set(func(g *gate) { g.renew = hangRenew })
		w.pass(10 * time.Second)
		if a.Holds("cron") {
			t.Fatal("not lost, so this test shows nothing")
		}
		var held *locker.HeldError
		if err := b.tryTake(r); !errors.As(err, &held) || held.State != locker.OccupancyMinHold {
			t.Errorf("another pod got %v, want held by the minimum hold", err)
		}
		w.pass(50 * time.Second)
		b.take(r)
	})
}

// The holder was told until when it is valid, and may use that to stop. What
// says that the lock is gone may be a part of the store only.
func TestWhatIsLeftOfALostLockKeepsOthersOutUntilItsValidityEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s, other := w.sidecarOn("a", g, locker.Config{}), w.sidecar("b")
		st := s.take(want("k", 9*time.Second))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict {
				return []locker.Verdict{{Err: locker.ErrGone}}
			}
		})
		w.pass(4 * time.Second)
		s.mustBeLost("k", locker.Handle{Fence: st.Fence}, locker.CauseGone)
		w.pass(st.ValidUntil.Sub(w.now()) - time.Millisecond)
		if err := other.tryTake(want("k", time.Second)); !errors.As(err, new(*locker.HeldError)) {
			t.Errorf("before its end: %v", err)
		}
		w.pass(100 * time.Millisecond)
		other.take(want("k", time.Second))
	})
}

func TestALateAnswerCannotReplaceALaterGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			g.set(func(g *gate) { g.acquire = nil })
			answer, err := w.store.Acquire(ctx, c)
			time.Sleep(200 * time.Millisecond) // the answer is slow
			return answer, err
		}
		first := make(chan error)
		go func() { first <- s.tryTake(owned("k", "w1")) }()
		time.Sleep(100 * time.Millisecond)
		w.store.Wipe()
		later := s.take(owned("k", "w2"))
		if err := <-first; !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Errorf("the grant that the store has lost: %v, want ErrAcquireUnresolved", err)
		}
		w.pass(time.Minute)
		if st := s.mustHold("k"); st.Fence != later.Fence {
			t.Errorf("fence %d is held, want %d", st.Fence, later.Fence)
		}
	})
}

// The first DELETE may not have reached the store, so the second can still say
// that the work has failed.
func TestARepeatedReleaseCanGiveUpTheMinimumHold(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", 30*time.Second)
		r.MinHold = time.Minute
		s.take(r)
		g.set(func(g *gate) { g.release = hangRelease })
		if err := s.release("k"); !errors.As(err, new(*locker.UnconfirmedError)) {
			t.Fatalf("got %v, want unconfirmed", err)
		}
		g.set(func(g *gate) { g.release = nil })
		if err := s.Release(context.Background(), "k", locker.Handle{}, locker.ReleaseOptions{SkipMinHold: true}); err != nil {
			t.Fatal(err)
		}
		if value, _, taken := w.store.Value("k"); taken {
			t.Errorf("%q is still there", value)
		}
	})
}

// What is due while the machine is suspended must not hold up what comes next.
func TestAGrantIsGivenBackAtOnceAfterASuspension(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("lost", 30*time.Minute))
		w.store.Delete("lost") // what is left of it is given back when its validity is over
		w.pass(11 * time.Minute)
		s.skew.add(time.Hour)
		gone, leave := context.WithCancel(context.Background())
		leave()
		if _, _, err := s.Acquire(gone, want("k", 30*time.Second)); !errors.Is(err, locker.ErrCallerGone) {
			t.Fatalf("got %v", err)
		}
		w.pass(time.Second)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("a grant that nobody was told of is still there")
		}
	})
}

// Whoever reads our log may stop reading.
func TestALogThatIsNotReadHoldsUpNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := want("lost", 30*time.Second)
		s.take(r)
		block := make(chan struct{})
		s.log.block.Store(&block)
		w.store.Delete("lost")
		w.pass(11 * time.Second) // which is told in the log
		gone, leave := context.WithCancel(context.Background())
		leave()
		if _, _, err := s.Acquire(gone, want("k", 30*time.Second)); !errors.Is(err, locker.ErrCallerGone) {
			t.Fatalf("got %v", err)
		}
		w.pass(time.Second)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("a grant that nobody was told of is still there")
		}
		close(block)
		w.pass(time.Second)
		if !strings.Contains(s.log.String(), "lock lost") {
			t.Error("the loss was not told in the end")
		}
	})
}
