package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestAnExtensionBehindAHangingRenewalIsAnsweredWithinTheStoreTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 3*time.Second))
		g.set(func(g *gate) { g.renew = hangRenew })
		w.pass(time.Second + 100*time.Millisecond) // the watchdog's renewal hangs since 100 ms
		began := w.now()
		_, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{})
		if !errors.Is(err, locker.ErrExtendUnconfirmed) {
			t.Errorf("got %v, want ErrExtendUnconfirmed", err)
		}
		if took := w.now().Sub(began); took > storeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAnExtensionGoesOnThoughItsCallerLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", 3*time.Second))
		ctx, leave := context.WithCancel(context.Background())
		g.set(func(g *gate) {
			g.renew = func(ctx context.Context, r []locker.Renewal) []locker.Verdict {
				leave()
				synctest.Wait()
				if ctx.Err() != nil {
					t.Error("the request to the store ends with its caller")
				}
				return w.store.Renew(ctx, r)
			}
		})
		long := time.Minute
		if st, err := s.Extend(ctx, "k", locker.Handle{}, locker.Changes{TTL: &long}); err != nil || st.TTL != long {
			t.Errorf("a TTL of %v, %v", st.TTL, err)
		}
	})
}

func TestALeaseThatAnUnansweredShorterOneBoundsIsRenewedInTime(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", time.Minute))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict {
				g.set(func(g *gate) { g.renew = nil })
				return all(len(r), errBroken)
			}
		})
		short, long := 2*time.Second, 10*time.Second
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &short}); !errors.Is(err, locker.ErrExtendUnconfirmed) {
			t.Fatalf("got %v", err)
		}
		st, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &long})
		if err != nil || st.ValidFor > short {
			t.Fatalf("valid for %v, %v; want no longer than the %v which may be set late", st.ValidFor, err, short)
		}
		w.pass(short)
		if st := s.mustHold("k"); st.ValidFor < long-short-locker.DriftMargin(long) {
			t.Errorf("valid for %v, want about %v", st.ValidFor, long)
		}
	})
}

// What was told before it, and holds again after it, is not cut by a renewal.
func TestAShorterLeaseThatWasCertainlyNotSetBoundsNoLaterOne(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("k", time.Minute))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict {
				g.set(func(g *gate) { g.renew = nil })
				return all(len(r), errDown)
			}
		})
		short := 2 * time.Second
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{TTL: &short}); !errors.Is(err, errDown) {
			t.Fatalf("got %v", err)
		}
		told := s.mustHold("k").ValidUntil
		if st, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{}); err != nil || st.ValidUntil < told {
			t.Errorf("valid until %d, %v; %d was told before it was renewed", st.ValidUntil, err, told)
		}
	})
}

func TestAnExtensionThatCertainlyDidNotHappenLeavesTheNote(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", time.Minute)
		r.Note = "before"
		s.take(r)
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict { return all(len(r), errDown) }
		})
		note := "after"
		if _, err := s.Extend(context.Background(), "k", locker.Handle{}, locker.Changes{Note: &note}); !errors.Is(err, errDown) {
			t.Fatalf("got %v", err)
		}
		if st := s.mustHold("k"); st.Note != "before" {
			t.Errorf("the note is %q", st.Note)
		}
	})
}

func TestALockCutShortByItsMaximumHoldIsVerifiedEachThirdOfWhatIsLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := want("k", 30*time.Second)
		r.MaxHold = 9 * time.Second
		s.take(r)
		w.store.Wipe()
		w.pass(3 * time.Second)
		if _, err := s.Get("k", locker.Handle{}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("got %v, want lost", err)
		}
	})
}
