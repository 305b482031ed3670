package locker_test

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

func TestFencesRiseThoughTheStoreLosesItsDataAndItsClock(t *testing.T) {
	inWorld(t, func(w *world) {
		back := new(skew)
		w.store = memory.New(memory.Config{Now: w.now, Wall: func() time.Time { return time.Now().Add(-back.get()) }})
		a, b := w.sidecar("a"), w.sidecar("b")
		a.take(want("elsewhere", time.Minute)) // all that a ever learns of the store's clock
		var last locker.Fence
		for range 5 {
			w.pass(10 * time.Second)
			for _, s := range []*sidecar{b, a} {
				st := s.take(want("k", time.Second))
				if st.Fence <= last {
					t.Errorf("fence %d after %d", st.Fence, last)
				}
				last = st.Fence
				if err := s.release("k"); err != nil {
					t.Fatal(err)
				}
				w.pass(time.Second)
				w.store.Wipe()
				back.add(time.Hour)
				w.pass(time.Second)
			}
		}
	})
}

func TestAnImplausibleFenceIsGivenBackAndNotLearned(t *testing.T) {
	inWorld(t, func(w *world) {
		ahead := new(skew)
		w.store = memory.New(memory.Config{Now: w.now, Wall: func() time.Time { return time.Now().Add(ahead.get()) }})
		s := w.sidecarOn("a", floorless{w.store}, locker.Config{})
		first := s.take(want("a", time.Second))
		ahead.add(3 * 365 * 24 * time.Hour)
		if err := s.tryTake(want("b", time.Minute)); err == nil {
			t.Error("granted with a fence three years ahead")
		}
		w.pass(time.Second)
		if _, _, taken := w.store.Value("b"); taken {
			t.Error("the key is still taken")
		}
		ahead.add(-3 * 365 * 24 * time.Hour)
		if st := s.take(want("c", time.Second)); st.Fence > first.Fence+locker.Fence(time.Minute/time.Microsecond) {
			t.Errorf("fence %d after %d: the implausible one was learned", st.Fence, first.Fence)
		}
	})
}
