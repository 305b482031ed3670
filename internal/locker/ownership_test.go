package locker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func owned(key locker.Key, owner string) locker.Request {
	return locker.Request{Key: key, Owner: owner, TTL: 10 * time.Second, Renew: true}
}

func TestTheOwnersRepeatedRequestReturnsTheSameGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		first := s.take(owned("k", "w1"))
		again, repeated, err := s.Acquire(context.Background(), owned("k", "w1"))
		if err != nil || !repeated || again.Fence != first.Fence || again.ID != first.ID {
			t.Errorf("got %+v, repeated %v, %v", again, repeated, err)
		}
		if err := s.tryTake(owned("k", "w2")); !errors.As(err, new(*locker.HeldError)) {
			t.Errorf("another owner: %v, want held", err)
		}
		if err := s.tryTake(want("k", time.Second)); !errors.As(err, new(*locker.HeldError)) {
			t.Errorf("nobody in particular: %v, want held", err)
		}
	})
}

func TestARepeatedRequestMustNameTheGrantsParameters(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(owned("k", "w1"))
		for p, change := range map[locker.Parameter]func(*locker.Request){
			locker.ParamTTL:     func(r *locker.Request) { r.TTL = time.Minute },
			locker.ParamRenew:   func(r *locker.Request) { r.Renew = false },
			locker.ParamMaxHold: func(r *locker.Request) { r.MaxHold = time.Hour },
			locker.ParamMinHold: func(r *locker.Request) { r.MinHold = time.Second },
			locker.ParamNote:    func(r *locker.Request) { r.Note = "other" },
		} {
			r := owned("k", "w1")
			change(&r)
			if err := s.tryTake(r); err != nil {
				t.Errorf("%s differs by its default alone: %v", p, err)
			}
			r.Given = []locker.Parameter{p}
			var mismatch *locker.MismatchError
			if err := s.tryTake(r); !errors.As(err, &mismatch) || mismatch.Parameter != string(p) {
				t.Errorf("%s given and different: %v", p, err)
			}
		}
	})
}

func TestAnOwnerThatIsStillAskingIsBusy(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, acquire: hangAcquire}
		s := w.sidecarOn("a", g, locker.Config{})
		go func() { _ = s.tryTake(owned("k", "w1")) }()
		synctest.Wait()
		if err := s.tryTake(owned("k", "w1")); !errors.Is(err, locker.ErrOwnerBusy) {
			t.Errorf("got %v, want ErrOwnerBusy", err)
		}
		w.pass(time.Second)
	})
}

func TestAHandleActsOnItsOwnGrantOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(owned("k", "w1"))
		mine := []locker.Handle{{}, {Owner: "w1"}, {Fence: st.Fence}, {Owner: "w1", Fence: st.Fence}}
		others := []locker.Handle{{Owner: "w2"}, {Fence: st.Fence + 1}, {Owner: "w2", Fence: st.Fence}}
		for _, h := range mine {
			if _, err := s.Get("k", h); err != nil {
				t.Errorf("Get with %+v: %v", h, err)
			}
		}
		for _, h := range others {
			if _, err := s.Get("k", h); !errors.Is(err, locker.ErrOwnerMismatch) {
				t.Errorf("Get with %+v: %v", h, err)
			}
			if _, err := s.Extend(context.Background(), "k", h, locker.Changes{}); !errors.Is(err, locker.ErrOwnerMismatch) {
				t.Errorf("Extend with %+v: %v", h, err)
			}
			if err := s.Release(context.Background(), "k", h, locker.ReleaseOptions{}); !errors.Is(err, locker.ErrOwnerMismatch) {
				t.Errorf("Release with %+v: %v", h, err)
			}
		}
		if err := s.release("k"); !errors.Is(err, locker.ErrOwnerMismatch) {
			t.Errorf("Release of an owned lock without a handle: %v", err)
		}
		s.mustHold("k")
		if err := s.Release(context.Background(), "k", locker.Handle{}, locker.ReleaseOptions{Force: true}); err != nil {
			t.Errorf("forced: %v", err)
		}
		if _, err := s.Get("k", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
	})
}

func TestALossIsRememberedPerGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(owned("k", "w1"))
		w.store.Wipe()
		w.pass(4 * time.Second)
		for range 2 {
			if _, err := s.Get("k", locker.Handle{Owner: "w1"}); !errors.As(err, new(*locker.LostError)) {
				t.Fatalf("got %v, want lost", err)
			}
		}
		// Another worker's success does not hide it.
		other := s.take(owned("k", "w2"))
		if _, err := s.Get("k", locker.Handle{Fence: st.Fence}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("by its fence: %v, want lost", err)
		}
		if _, err := s.Get("k", locker.Handle{}); err != nil {
			t.Errorf("without a handle: %v, want the new grant", err)
		}
		if err := s.Release(context.Background(), "k", locker.Handle{Fence: other.Fence}, locker.ReleaseOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get("k", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("without a handle, after a later grant: %v, want ErrNotHeld", err)
		}
		// Its own release clears it, and so does its owner's next success.
		if err := s.Release(context.Background(), "k", locker.Handle{Owner: "w1"}, locker.ReleaseOptions{}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("its release: %v, want lost", err)
		}
		if _, err := s.Get("k", locker.Handle{Owner: "w1"}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("afterwards: %v, want ErrNotHeld", err)
		}
	})
}

func TestTheOwnersNextGrantClearsItsLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		old := s.take(owned("k", "w1"))
		w.store.Wipe()
		w.pass(4 * time.Second)
		s.take(owned("k", "w1"))
		if _, err := s.Get("k", locker.Handle{Fence: old.Fence}); !errors.Is(err, locker.ErrOwnerMismatch) {
			t.Errorf("got %v, want ErrOwnerMismatch", err)
		}
	})
}

func TestLossesAreForgottenAfterTenMinutesAndBeyondTenThousand(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecarOn("a", w.store, locker.Config{MaxHeld: 20_000})
		r := want("", time.Second)
		r.Renew = false
		for i := range 10_001 {
			r.Key = locker.Key(fmt.Sprint("k", i))
			s.take(r)
			if i == 0 {
				w.pass(time.Millisecond) // so that it is the oldest
			}
		}
		w.pass(time.Second)
		synctest.Wait()
		if n := len(s.List()); n != 10_000 {
			t.Errorf("%d losses are remembered, want 10,000", n)
		}
		if _, err := s.Get("k0", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("the oldest: %v, want forgotten", err)
		}
		if _, err := s.Get("k10000", locker.Handle{}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("the newest: %v, want lost", err)
		}
		w.pass(10 * time.Minute)
		if n := len(s.List()); n != 0 {
			t.Errorf("%d losses are remembered after ten minutes", n)
		}
	})
}

func TestTheLimitRefusesNewLocksAndForgetsNone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecarOn("a", w.store, locker.Config{MaxHeld: 3})
		for _, key := range []locker.Key{"a", "b", "c"} {
			s.take(owned(key, "w"))
		}
		if err := s.tryTake(owned("d", "w")); !errors.Is(err, locker.ErrTooManyLocks) {
			t.Errorf("got %v, want ErrTooManyLocks", err)
		}
		if err := s.tryTake(owned("a", "w")); err != nil {
			t.Errorf("a repeated request at the limit: %v", err)
		}
		w.pass(time.Minute)
		for _, key := range []locker.Key{"a", "b", "c"} {
			s.mustHold(key)
		}
	})
}

func TestAnUndeliveredGrantIsGivenBackAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		r := owned("k", "w1")
		r.MinHold = time.Hour
		st := s.take(r)
		s.GiveBack(st.ID)
		synctest.Wait()
		w.sidecar("b").take(want("k", time.Second))
	})
}

func TestAGrantThatAnotherAnswerReportedIsNotGivenBack(t *testing.T) {
	for name, report := range map[string]func(*sidecar){
		"a repeated request": func(s *sidecar) { s.take(owned("k", "w1")) },
		"a reading":          func(s *sidecar) { s.mustHold("k") },
		"a listing":          func(s *sidecar) { s.List() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.sidecar("a")
				st := s.take(owned("k", "w1"))
				report(s)
				s.GiveBack(st.ID)
				w.pass(time.Minute)
				s.mustHold("k")
			})
		})
	}
}

func TestACallerThatHasGoneGetsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			w.pass(100 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("the request to the store ends with its caller")
			}
			return w.store.Acquire(ctx, c)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			time.Sleep(50 * time.Millisecond)
			cancel()
		}()
		if _, _, err := s.Acquire(ctx, want("k", time.Minute)); !errors.Is(err, locker.ErrCallerGone) {
			t.Errorf("got %v, want ErrCallerGone", err)
		}
		synctest.Wait()
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the grant was kept for a caller that has gone")
		}
	})
}

func TestARequestWaitsForAReleaseThatIsOnItsWay(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.release = func(ctx context.Context, r []locker.Surrender) []locker.Verdict {
			w.pass(100 * time.Millisecond)
			return w.store.Release(ctx, r)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		old := s.take(owned("k", "w1"))
		go func() {
			_ = s.Release(context.Background(), "k", locker.Handle{Owner: "w1"}, locker.ReleaseOptions{})
		}()
		synctest.Wait()
		if fresh := s.take(owned("k", "w1")); fresh.Fence <= old.Fence {
			t.Errorf("fence %d after %d", fresh.Fence, old.Fence)
		}
	})
}

func TestReleaseWhereGivesBackTheOwnersLocksOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		for _, key := range []locker.Key{"c", "a", "b"} {
			s.take(owned(key, "w1"))
		}
		s.take(owned("other", "w2"))
		released, unconfirmed := s.ReleaseWhere(context.Background(), "w1", false)
		if fmt.Sprint(released, unconfirmed) != "[a b c] []" {
			t.Errorf("released %v, unconfirmed %v", released, unconfirmed)
		}
		s.mustHold("other")
		if released, _ = s.ReleaseWhere(context.Background(), "", true); fmt.Sprint(released) != "[other]" {
			t.Errorf("released %v", released)
		}
	})
}
