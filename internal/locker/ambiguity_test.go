package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var errBroken = &locker.StoreError{Reason: locker.StoreBroken}

func TestALostReplyIsAskedAgainAndOurOwnTokenIsRecognised(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			g.set(func(g *gate) { g.acquire = nil })
			_, _ = w.store.Acquire(ctx, c)
			return locker.Grant{}, errBroken
		}
		s := w.sidecarOn("a", g, locker.Config{})
		began := w.now()
		st := s.take(want("k", 5*time.Second))
		if st.ValidUntil > began.Add(5*time.Second-locker.DriftMargin(5*time.Second)) {
			t.Error("validity counts from the second request")
		}
		if err := s.release("k"); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * storeTimeout)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is taken after its release")
		}
	})
}

func TestAnUnknownAcquireIsUndoneAlsoIfItIsExecutedLate(t *testing.T) {
	for name, delay := range map[string]time.Duration{
		"at once": 0, "at the deadline": storeTimeout, "after the first clean-up": storeTimeout - time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := &gate{Backend: w.store}
				g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
					go func() {
						time.Sleep(delay)
						_, _ = w.store.Acquire(context.Background(), c)
					}()
					return hangAcquire(ctx, c)
				}
				s := w.sidecarOn("a", g, locker.Config{})
				if err := s.tryTake(want("k", time.Minute)); !errors.Is(err, locker.ErrAcquireUnresolved) {
					t.Fatalf("got %v, want ErrAcquireUnresolved", err)
				}
				w.pass(time.Second)
				if _, _, taken := w.store.Value("k"); taken {
					t.Error("the lock is taken by nobody, a second later")
				}
			})
		})
	}
}

func TestAnUnknownAcquireIsUndoneOnceTheStoreCanBeReached(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			_, _ = w.store.Acquire(ctx, c)
			return hangAcquire(ctx, c)
		}
		g.release = hangRelease
		s := w.sidecarOn("a", g, locker.Config{})
		if err := s.tryTake(want("k", time.Minute)); !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Fatalf("got %v", err)
		}
		w.pass(10 * time.Second)
		g.set(func(g *gate) { g.release = nil })
		w.pass(2 * time.Second)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the clean-up was given up")
		}
	})
}

func TestTheCleanUpEndsByItself(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, acquire: hangAcquire, release: hangRelease}
		s := w.sidecarOn("a", g, locker.Config{})
		_ = s.tryTake(want("k", 5*time.Second))
		w.pass(20 * time.Second)
		before := g.called("release")
		w.pass(time.Hour)
		if after := g.called("release"); after != before {
			t.Errorf("still cleaning up an hour later: %d calls", after-before)
		}
	})
}

func TestTheLeastCertainOutcomeIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(context.Context, locker.Claim) (locker.Grant, error) {
			g.set(func(g *gate) {
				g.acquire = func(context.Context, locker.Claim) (locker.Grant, error) { return locker.Grant{}, errDown }
			})
			return locker.Grant{}, errBroken
		}
		s := w.sidecarOn("a", g, locker.Config{})
		if err := s.tryTake(want("k", time.Minute)); !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Errorf("got %v, want ErrAcquireUnresolved: the first request may have been executed", err)
		}
	})
}

func TestACertainFailureIsToldAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(context.Context, locker.Claim) (locker.Grant, error) { return locker.Grant{}, errDown }
		s := w.sidecarOn("a", g, locker.Config{})
		began := w.now()
		var store *locker.StoreError
		if err := s.tryTake(want("k", time.Minute)); !errors.As(err, &store) || !store.Certain {
			t.Errorf("got %v, want a certain StoreError", err)
		}
		w.pass(time.Second)
		if g.called("release") != 0 || w.now().Sub(began) > time.Second {
			t.Error("something was cleaned up, or the answer was late, though nothing had been sent")
		}
	})
}

func TestNoAnswerComesAfterTheStoreTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, acquire: hangAcquire, renew: hangRenew, release: hangRelease}
		s := w.sidecarOn("a", g, locker.Config{})
		timed := func(what string, f func()) {
			began := w.now()
			f()
			if took := w.now().Sub(began); took > storeTimeout {
				t.Errorf("%s took %v", what, took)
			}
		}
		timed("POST", func() { _ = s.tryTake(want("k", time.Minute)) })
		timed("POST behind a clean-up", func() { _ = s.tryTake(want("k", time.Minute)) })
		g.set(func(g *gate) { g.acquire = nil })
		s.take(want("other", time.Minute))
		timed("PATCH", func() { _, _ = s.Extend(context.Background(), "other", locker.Handle{}, locker.Changes{}) })
		timed("DELETE", func() { _ = s.release("other") })
		timed("DELETE again", func() { _ = s.release("other") })
	})
}

func TestALateRenewalCannotReviveALostLock(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 2*time.Second))
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				go func() {
					// Just before its time is over: the latest that a store may.
					time.Sleep(r[0].NotAfter.Sub(w.now()) - time.Millisecond)
					w.store.Renew(context.Background(), r)
				}()
				return hangRenew(ctx, r)
			}
		})
		w.pass(2500 * time.Millisecond)
		if s.Holds("k") {
			t.Error("still held")
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("a renewal that was executed late keeps the key taken")
		}
	})
}

func TestAnUnansweredShorterLeaseBoundsALaterLongerOne(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", 10*time.Second)
		r.Renew = false
		s.take(r)
		short, long := 2*time.Second, time.Hour
		var late []locker.Renewal
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				late = r
				return all(1, errBroken)
			}
		})
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &short}); !errors.Is(err, locker.ErrExtendUnconfirmed) {
			t.Fatalf("got %v", err)
		}
		if left := s.mustHold("k").ValidFor; left > short {
			t.Errorf("valid for %v though the store may keep it for %v only", left, short)
		}
		g.set(func(g *gate) { g.renew = nil })
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &long}); err != nil {
			t.Fatal(err)
		}
		w.store.Renew(context.Background(), late) // the shorter lease is executed now
		_, left, _ := w.store.Value("k")
		if st := s.mustHold("k"); st.ValidFor > left {
			t.Errorf("valid for %v while the store keeps the key for %v", st.ValidFor, left)
		}
	})
}

func TestAnExtensionThatCertainlyDidNotHappenChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		before := s.take(want("k", 10*time.Second))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict { return all(len(r), errDown) }
		})
		short := time.Second
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &short}); !errors.Is(err, errDown) {
			t.Fatalf("got %v", err)
		}
		if st := s.mustHold("k"); st.TTL != before.TTL || st.ValidUntil != before.ValidUntil {
			t.Errorf("the lease is %v until %v, want %v until %v", st.TTL, st.ValidUntil, before.TTL, before.ValidUntil)
		}
	})
}

func TestAnUnconfirmedReleaseIsRepeatedAndItsEndIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, release: hangRelease}
		s := w.sidecarOn("a", g, locker.Config{})
		st := s.take(want("k", 10*time.Second))
		var open *locker.UnconfirmedError
		if err := s.release("k"); !errors.As(err, &open) || open.FreeWithin > 11*time.Second {
			t.Fatalf("got %v, want unconfirmed", err)
		}
		if s.Holds("k") {
			t.Error("held after its release was accepted")
		}
		renewals := g.called("renew")
		if err := s.release("k"); !errors.As(err, &open) {
			t.Errorf("a repeated release: %v, want unconfirmed", err)
		}
		g.set(func(g *gate) { g.release = nil })
		w.pass(time.Second)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the release was not repeated")
		}
		if err := s.Release(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{}); err != nil {
			t.Errorf("asked how the release went: %v, want released", err)
		}
		if err := s.release("k"); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("once told: %v, want ErrNotHeld", err)
		}
		if g.called("renew") != renewals {
			t.Error("renewed after the release was accepted")
		}
	})
}

func TestAReleaseAfterAnUnansweredRequestRepeatsUntilThatCannotBeExecuted(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		var late locker.Claim
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			g.set(func(g *gate) { g.acquire = nil })
			late = c
			return locker.Grant{}, errBroken // on its way, not executed yet
		}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", time.Minute))
		if err := s.release("k"); err != nil {
			t.Fatal(err)
		}
		late.Token = locker.TokenFromStore(late.Token.Reveal())
		w.store.Wipe() // so that the store cannot know that the token is spent
		_, _ = w.store.Acquire(context.Background(), late)
		if _, _, taken := w.store.Value("k"); !taken {
			t.Fatal("the late request was not executed, so this test shows nothing")
		}
		w.pass(2 * storeTimeout)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("a request that was executed after the release keeps the key taken")
		}
	})
}

func TestAReleaseThatFindsTheLockGoneSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 30*time.Second))
		w.store.Wipe()
		var lost *locker.LostError
		if err := s.release("k"); !errors.As(err, &lost) || lost.Cause != locker.CauseGone {
			t.Errorf("got %v, want lost, gone", err)
		}
		if err := s.release("k"); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("told once: %v, want ErrNotHeld", err)
		}
		synctest.Wait()
		if s.seen.lost[locker.CauseGone] != 1 {
			t.Errorf("losses counted: %v", s.seen.lost)
		}
	})
}

func TestALostLockIsDeletedWhereItsTokenIsStillThere(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, renew: hangRenew}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 2*time.Second))
		value, _, _ := w.store.Value("k")
		w.pass(time.Second)
		w.store.Put("k", value, time.Hour) // a step of the server's clock
		w.pass(time.Second)
		g.set(func(g *gate) { g.renew = nil })
		w.pass(time.Second)
		if s.Holds("k") {
			t.Error("a lost lock is held again")
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("our own token was left at the key")
		}
		s.take(want("k", 2*time.Second))
	})
}

func TestAShorterLeaseThatIsDeliveredTwiceBoundsALaterLongerOne(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", 10*time.Second)
		r.Renew = false
		s.take(r)
		short, long := 2*time.Second, time.Hour
		var copied []locker.Renewal
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				copied = r
				return w.store.Renew(ctx, r)
			}
		})
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &short}); err != nil {
			t.Fatal(err)
		}
		g.set(func(g *gate) { g.renew = nil })
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &long}); err != nil {
			t.Fatal(err)
		}
		w.store.Renew(context.Background(), copied) // the network delivers it again
		_, left, _ := w.store.Value("k")
		if st := s.mustHold("k"); st.ValidFor > left {
			t.Errorf("valid for %v while the store keeps the key for %v", st.ValidFor, left)
		}
		w.pass(storeTimeout) // the copy cannot be executed any more
		if st, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{}); err != nil || st.ValidFor < 59*time.Minute {
			t.Errorf("extended again: %v, valid for %v", err, st.ValidFor)
		}
	})
}
