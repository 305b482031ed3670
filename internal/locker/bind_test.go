package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// leadMax is the longest time before the end of validity at which a grant is
// given up.
const leadMax = 250 * time.Millisecond

func boundTo(key locker.Key, owner string) locker.Request {
	r := binding(key, 30*time.Second)
	r.Owner = owner
	return r
}

func TestABoundLockEndsWithItsConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		s, other := w.sidecar("a"), w.sidecar("b")
		st := s.take(binding("k", 30*time.Second))
		if !st.Bound || !s.mustHold("k").Bound {
			t.Error("it is not said to be bound")
		}
		w.pass(10 * time.Minute)
		s.mustHold("k")
		s.Unbind(st.ID, locker.Left)
		other.take(want("k", time.Second))
		s.Unbind(st.ID, locker.Left) // of a grant that is over: nothing
		if _, err := s.Get("k", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("Get: %v", err)
		}
		if n := s.Residue(); n != 0 {
			t.Errorf("%d things are left", n)
		}
		if got := s.seen.releases(locker.ReleaseUnbound); got != 1 {
			t.Errorf("%d releases were counted", got)
		}
	})
}

func TestTheEndOfItsConnectionHandsABoundLockToTheNextInLine(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, waiter := range []string{"a", "b"} {
			sidecars := map[string]*sidecar{"a": w.sidecar("a"), "b": w.sidecar("b")}
			s := sidecars["a"]
			st := s.take(binding("k", 30*time.Second))
			got := make(chan locker.Status, 1)
			go func() {
				r := binding("k", 30*time.Second)
				r.Wait = time.Minute
				next, _, err := sidecars[waiter].Acquire(context.Background(), r)
				if err != nil {
					t.Error(err)
				}
				got <- next
			}()
			w.pass(100 * time.Millisecond)
			began := w.now()
			s.Unbind(st.ID, locker.Left)
			next := <-got
			if took := w.now().Sub(began); took > time.Millisecond || next.Fence <= st.Fence {
				t.Errorf("a waiter of %s has it after %v, fence %d after %d", waiter, took, next.Fence, st.Fence)
			}
			sidecars[waiter].Unbind(next.ID, locker.Left)
		}
	})
}

func TestALockThatIsBoundAgainEndsWithTheLastConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		s, other := w.sidecar("a"), w.sidecar("b")
		st := s.take(boundTo("k", "w1"))
		again, repeated, err := s.Acquire(context.Background(), boundTo("k", "w1"))
		if err != nil || !repeated || again.ID != st.ID {
			t.Fatalf("again: %+v, %v, %v", again, repeated, err)
		}
		s.Unbind(st.ID, locker.Left)
		s.mustHold("k")
		s.Unbind(st.ID, locker.LeftUntold) // the repeated answer did not arrive
		other.take(want("k", time.Second))
	})
}

func TestARepeatedRequestThatBindsDifferentlyIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(owned("loose", "w1"))
		s.take(boundTo("tied", "w1"))
		var mismatch *locker.MismatchError
		if err := s.tryTake(boundTo("loose", "w1")); !errors.As(err, &mismatch) || mismatch.Parameter != "bind" {
			t.Errorf("binding what is not bound: %v", err)
		}
		r := boundTo("tied", "w1")
		r.Bound, r.Given = false, []locker.Parameter{locker.ParamBind}
		if err := s.tryTake(r); !errors.As(err, &mismatch) || mismatch.Parameter != "bind" {
			t.Errorf("bind=none of what is bound: %v", err)
		}
		r.Given = nil
		st, repeated, err := s.Acquire(context.Background(), r)
		if err != nil || !repeated || !st.Bound {
			t.Errorf("a repeat that says nothing of it: %+v, %v", st, err)
		}
		// Neither its answer nor its connection matters to the lock.
		s.GiveBack(st.ID)
		s.mustHold("tied")
		s.Unbind(st.ID, locker.Left)
		if s.Holds("tied") {
			t.Error("it outlives its connection")
		}
	})
}

func TestABoundGrantThatNobodyHeardOfIsGivenBackInSpiteOfItsMinimumHold(t *testing.T) {
	inWorld(t, func(w *world) {
		s, other := w.sidecar("a"), w.sidecar("b")
		for _, told := range []bool{false, true} {
			r := binding("k", 30*time.Second)
			r.MinHold = time.Minute
			st := s.take(r)
			how := locker.LeftUntold
			if told {
				how = locker.Left
			}
			s.Unbind(st.ID, how)
			err := other.tryTake(want("k", time.Second))
			if (err == nil) == told {
				t.Errorf("told %v: another: %v", told, err)
			}
			if err == nil {
				_ = other.release("k")
			}
		}
		if given, ended := s.seen.releases(locker.ReleaseGivenBack), s.seen.releases(locker.ReleaseUnbound); given != 1 || ended != 1 {
			t.Errorf("%d given back and %d released, want 1 of each", given, ended)
		}
	})
}

func TestAShutdownWaitsForBoundLocksToBeCleared(t *testing.T) {
	for mode, wants := range map[locker.ReleaseMode]locker.Counts{
		locker.ModeDrop:    {Released: 1, Dropped: 1},
		locker.ModeGuarded: {Released: 1, Left: 1},
		locker.ModeRelease: {Released: 1, Left: 1},
	} {
		inWorld(t, func(w *world) {
			s, other := w.sidecar("a"), w.sidecar("b")
			closing, open := s.take(binding("closing", 30*time.Second)), s.take(binding("open", 30*time.Second))
			go func() {
				time.Sleep(500 * time.Millisecond)
				s.Unbind(closing.ID, locker.Left)
				other.take(want("closing", time.Second))
				s.mustHold("open")
			}()
			began := w.now()
			if got := s.shutDown(mode); got != wants {
				t.Errorf("%s: %+v, want %+v", mode, got, wants)
			}
			if took := w.now().Sub(began); took < grace {
				t.Errorf("%s: it waited %v for the connection of %d", mode, took, open.Fence)
			}
			if err := other.tryTake(want("open", time.Second)); (err == nil) != (mode == locker.ModeDrop) {
				t.Errorf("%s: another: %v", mode, err)
			}
		})
	}
}

func TestALockWhoseCallerIsDeafEndsWithItsValidity(t *testing.T) {
	inWorld(t, func(w *world) {
		s, other := w.sidecar("a"), w.sidecar("b")
		st := s.take(boundTo("k", "w1"))
		w.pass(15 * time.Second)
		s.Unbind(st.ID, locker.LeftDeaf)
		until := s.mustHold("k").ValidUntil
		w.pass(until.Sub(w.now()) - leadMax - time.Millisecond)
		var held *locker.HeldError
		for _, at := range []*sidecar{s, other} {
			if err := at.tryTake(want("k", time.Second)); !errors.As(err, &held) {
				t.Errorf("before its end: %v", err)
			}
		}
		w.pass(leadMax + time.Millisecond)
		var lost *locker.LostError
		if _, err := s.Get("k", locker.Handle{Fence: st.Fence}); !errors.As(err, &lost) || lost.Cause != locker.CauseExpired {
			t.Errorf("Get: %v", err)
		}
		w.pass(10 * time.Millisecond)
		other.take(want("k", time.Second))
	})
}

// One that was left deaf may still be at work when a later connection of its
// owner ends.
func TestALockOutlastsWhatADeafCallerWasToldWhicheverConnectionEndsLast(t *testing.T) {
	for name, end := range map[string]func(s *sidecar, id locker.GrantID){
		"the deaf one is left first": func(s *sidecar, id locker.GrantID) {
			s.take(boundTo("k", "w1"))
			s.Unbind(id, locker.LeftDeaf)
			s.Unbind(id, locker.Left)
		},
		"the other one came later": func(s *sidecar, id locker.GrantID) {
			s.Unbind(id, locker.LeftDeaf)
			s.take(boundTo("k", "w1"))
			s.Unbind(id, locker.Left)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s, other := w.sidecar("a"), w.sidecar("b")
				st := s.take(boundTo("k", "w1"))
				told := s.mustHold("k").ValidUntil
				end(s, st.ID)
				w.pass(told.Sub(w.now()) - leadMax - time.Millisecond)
				if err := other.tryTake(want("k", time.Second)); !errors.As(err, new(*locker.HeldError)) {
					t.Errorf("before its end: %v", err)
				}
				w.pass(time.Minute)
				other.take(want("k", time.Second))
			})
		})
	}
}

func TestALockWhoseCallerIsDeafIsRenewedOnceItIsBoundAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(boundTo("k", "w1"))
		s.Unbind(st.ID, locker.LeftDeaf)
		w.pass(20 * time.Second)
		again := boundTo("k", "w1")
		again.Given = []locker.Parameter{locker.ParamRenew}
		s.take(again)
		w.pass(time.Minute)
		if got := s.mustHold("k"); got.ID != st.ID || !got.Renew {
			t.Errorf("%+v", got)
		}
	})
}
