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

const (
	grace = 1500 * time.Millisecond
	bound = 2 * time.Second
)

func (s *sidecar) shutDown(mode locker.ReleaseMode) locker.Counts {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return s.Shutdown(ctx, mode, grace)
}

func TestADrainingSidecarRefusesNewLocksAndKeepsItsOwn(t *testing.T) {
	for name, begin := range map[string]func(*sidecar){
		"drain": func(s *sidecar) { s.Drain() }, "shutdown": func(s *sidecar) { s.Refuse() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.sidecar("a")
				st := s.take(owned("k", "w1"))
				begin(s)
				if err := s.tryTake(want("new", time.Second)); !errors.Is(err, locker.ErrShuttingDown) && !errors.Is(err, locker.ErrDraining) {
					t.Errorf("a new lock: %v", err)
				}
				if _, repeated, err := s.Acquire(context.Background(), owned("k", "w1")); err != nil || !repeated {
					t.Errorf("the owner's repeated request: %v", err)
				}
				time.Sleep(time.Minute)
				if _, err := s.Extend(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.Changes{}); err != nil {
					t.Errorf("Extend: %v", err)
				}
				if err := s.Release(context.Background(), "k", locker.Handle{Owner: "w1"}, locker.ReleaseOptions{}); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		})
	}
}

func TestShutdownDropsClearedLocksAtOnce(t *testing.T) {
	for _, mode := range []locker.ReleaseMode{locker.ModeDrop, locker.ModeGuarded} {
		inWorld(t, func(w *world) {
			s := w.sidecar("a")
			for i := range 1000 {
				s.Cleared(s.take(want(locker.Key(fmt.Sprint("k", i)), 30*time.Second)).ID)
			}
			began := w.now()
			if got := s.shutDown(mode); got != (locker.Counts{Dropped: 1000}) {
				t.Errorf("%s: %+v", mode, got)
			}
			if took := w.now().Sub(began); took != 0 {
				t.Errorf("%s: it took %v though all had been cleared", mode, took)
			}
			w.sidecar("b").take(want("k77", time.Second))
		})
	}
}

func TestShutdownWaitsForTheGraceWhileConnectionsAreOpen(t *testing.T) {
	for mode, wants := range map[locker.ReleaseMode]locker.Counts{
		locker.ModeDrop:    {Dropped: 2},
		locker.ModeGuarded: {Dropped: 1, Left: 1},
		locker.ModeRelease: {Left: 2},
	} {
		inWorld(t, func(w *world) {
			s, b := w.sidecar("a"), w.sidecar("b")
			s.take(want("open", 3*time.Second))
			st := s.take(want("closing", 3*time.Second))
			began := w.now()
			go func() {
				time.Sleep(500 * time.Millisecond)
				s.Cleared(st.ID)
				time.Sleep(500 * time.Millisecond)
				if err := b.tryTake(want("open", time.Second)); !errors.As(err, new(*locker.HeldError)) {
					t.Errorf("%s: during the grace another got %v", mode, err)
				}
			}()
			if got := s.shutDown(mode); got != wants {
				t.Errorf("%s: %+v, want %+v", mode, got, wants)
			}
			if took := w.now().Sub(began); took != grace {
				t.Errorf("%s: it took %v, want the grace of %v", mode, took, grace)
			}
			s.stop()
			err := b.tryTake(want("open", time.Second))
			if mode == locker.ModeDrop && err != nil {
				t.Errorf("%s: not free for others: %v", mode, err)
			}
			if mode != locker.ModeDrop {
				if !errors.As(err, new(*locker.HeldError)) {
					t.Errorf("%s: free while its client may still work: %v", mode, err)
				}
				time.Sleep(3 * time.Second)
				b.take(want("open", time.Second)) // renewal has stopped
			}
		})
	}
}

func TestShutdownEndsOnceTheApplicationHasReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", 3*time.Second))
		go func() {
			time.Sleep(700 * time.Millisecond)
			if err := s.release("k"); err != nil {
				t.Error(err)
			}
		}()
		began := w.now()
		if got := s.shutDown(locker.ModeRelease); got != (locker.Counts{Released: 1}) {
			t.Errorf("%+v", got)
		}
		if took := w.now().Sub(began); took != 700*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestShutdownIsBoundedWhenTheStoreDoesNotAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store, release: hangRelease}
		s := w.sidecarOn("a", g, locker.Config{})
		s.Cleared(s.take(want("k", 30*time.Second)).ID)
		began := w.now()
		if got := s.shutDown(locker.ModeDrop); got != (locker.Counts{Unconfirmed: 1}) {
			t.Errorf("%+v", got)
		}
		if took := w.now().Sub(began); took > bound {
			t.Errorf("it took %v, more than %v", took, bound)
		}
	})
}

func TestAGrantThatArrivesDuringShutdownIsGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			s.Refuse()
			return w.store.Acquire(ctx, c)
		}
		if err := s.tryTake(want("k", time.Minute)); !errors.Is(err, locker.ErrShuttingDown) {
			t.Errorf("got %v", err)
		}
		s.shutDown(locker.ModeDrop)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("left behind")
		}
	})
}

func TestShutdownWaitsForARequestThatIsOnItsWayAndUndoesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := make(chan struct{})
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			close(asked)
			time.Sleep(200 * time.Millisecond)
			return w.store.Acquire(ctx, c)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		refusal := make(chan error, 1)
		go func() { refusal <- s.tryTake(want("k", time.Minute)) }()
		<-asked
		s.shutDown(locker.ModeDrop)
		synctest.Wait()
		select {
		case err := <-refusal:
			if !errors.Is(err, locker.ErrShuttingDown) {
				t.Errorf("the caller is told %v", err)
			}
		default:
			t.Error("the process would end before it knows whether it has the lock")
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("left behind")
		}
	})
}
