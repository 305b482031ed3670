package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// waiting returns a request that waits.
func waiting(key locker.Key, wait time.Duration) locker.Request {
	return locker.Request{Key: key, TTL: 10 * time.Second, Renew: true, Wait: wait}
}

// granted is what one waiting caller got, and when.
type granted struct {
	st  locker.Status
	err error
	at  locker.Instant
}

// enter has a caller wait; it has entered the line when this returns.
func (w *world) enter(s *sidecar, ctx context.Context, r locker.Request) <-chan granted {
	got := make(chan granted, 1)
	go func() {
		st, _, err := s.Acquire(ctx, r)
		got <- granted{st, err, w.now()}
	}()
	synctest.Wait()
	return got
}

// noQueue hides that the store keeps a line.
type noQueue struct{ locker.Backend }

func TestWaitersAreServedInTheOrderOfTheirArrivalAcrossSidecars(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.sidecar("holder")
		st := holder.take(want("k", 10*time.Second))
		sidecars := []*sidecar{w.sidecar("a"), w.sidecar("b"), w.sidecar("c")}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		// a has most of the callers, and must neither starve the others nor be overtaken.
		for i, who := range []int{0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 2, 0} {
			s := sidecars[who]
			wg.Go(func() {
				st, _, err := s.Acquire(context.Background(), waiting("k", time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				if err := s.Release(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		began := w.now()
		if err := holder.Release(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := fmt.Sprint(order); got != "[0 1 2 3 4 5 6 7 8 9 10 11]" {
			t.Errorf("served in the order %s", got)
		}
		if took := w.now().Sub(began); took > 1250*time.Millisecond {
			t.Errorf("twelve holds of 100 ms took %v: waiters were not woken", took)
		}
	})
}

func TestAWaiterIsGrantedAtOnceWhenTheLockIsFree(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		began := w.now()
		s.take(waiting("k", time.Minute))
		if took := w.now().Sub(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAWaitThatIsOverSaysWhoHoldsTheLock(t *testing.T) {
	for name, hide := range map[string]bool{"in line": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.sidecar("holder").take(locker.Request{Key: "k", TTL: 10 * time.Second, Renew: true, Note: "busy"})
				var store locker.Backend = w.store
				if hide {
					store = noQueue{w.store}
				}
				s := w.sidecarOn("a", store, locker.Config{})
				began := w.now()
				err := s.tryTake(waiting("k", 3*time.Second))
				var held *locker.HeldError
				if !errors.As(err, &held) || !held.TimedOut || held.Holder == nil || held.Holder.Pod != "holder" || held.Holder.Note != "busy" {
					t.Errorf("got %v (%+v)", err, held)
				}
				if held.HeldHere {
					t.Error("said to be held here")
				}
				if took := w.now().Sub(began); took != 3*time.Second {
					t.Errorf("it took %v, want 3s", took)
				}
				w.pass(time.Second)
				if s.Stats().Waiting != 0 || len(s.List()) != 0 {
					t.Errorf("left behind: %+v", s.List())
				}
			})
		})
	}
}

func TestALockWhoseHolderDiedIsTakenAtItsExpiry(t *testing.T) {
	inWorld(t, func(w *world) {
		dead := w.sidecar("dead")
		dead.take(want("k", 3*time.Second))
		w.pass(1500 * time.Millisecond)
		dead.stop() // kill -9
		_, left, _ := w.store.Value("k")
		ends := w.now().Add(left)
		got := <-w.enter(w.sidecar("a"), w.t.Context(), waiting("k", time.Minute))
		if got.err != nil || got.at.Sub(ends) > 50*time.Millisecond {
			t.Errorf("granted %v after the expiry: %v", got.at.Sub(ends), got.err)
		}
	})
}

func TestACallerThatLeavesTheLineLetsTheNextOnePassAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, a, b := w.sidecar("holder"), w.sidecar("a"), w.sidecar("b")
		holder.take(want("k", 10*time.Second))
		ctx, leave := context.WithCancel(context.Background())
		first := w.enter(a, ctx, waiting("k", time.Minute))
		second := w.enter(b, w.t.Context(), waiting("k", time.Minute))
		leave()
		if got := <-first; !errors.Is(got.err, locker.ErrCallerGone) {
			t.Errorf("got %v", got.err)
		}
		synctest.Wait()
		released := w.now()
		if err := holder.release("k"); err != nil {
			t.Fatal(err)
		}
		if got := <-second; got.err != nil || got.at != released {
			t.Errorf("granted %v after the release: %v", got.at.Sub(released), got.err)
		}
	})
}

func TestThePlaceOfThoseWhoStayOutlivesCallersThatLeaveOneAfterAnother(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, many, later := w.sidecar("holder"), w.sidecar("many"), w.sidecar("later")
		holder.take(want("k", 10*time.Second))
		first, leaveFirst := context.WithCancel(context.Background())
		second, leaveSecond := context.WithCancel(context.Background())
		w.enter(many, first, waiting("k", time.Minute))
		w.enter(many, second, waiting("k", time.Minute))
		rest, leaveRest := context.WithCancel(context.Background())
		defer leaveRest()
		stays := w.enter(many, rest, waiting("k", time.Minute))
		behind := w.enter(later, rest, waiting("k", time.Minute))
		// Each leaves just before it would have asked.
		w.pass(locker.AskEvery - 50*time.Millisecond)
		leaveFirst()
		w.pass(locker.AskEvery - 50*time.Millisecond)
		leaveSecond()
		w.pass(locker.AskEvery / 2)
		if err := holder.release("k"); err != nil {
			w.t.Fatal(err)
		}
		w.pass(time.Millisecond)
		select {
		case got := <-stays:
			if got.err != nil {
				w.t.Error(got.err)
			}
		case <-behind:
			t.Error("one who came later was served first")
		default:
			t.Error("nobody was served")
		}
	})
}

func TestACallerThatLeavesAtTheMomentOfItsGrantPassesItOn(t *testing.T) {
	inWorld(t, func(w *world) {
		for round := range 200 {
			key := locker.Key(fmt.Sprint("k", round))
			holder, a, b := w.sidecar("holder"), w.sidecar("a"), w.sidecar("b")
			holder.take(want(key, 10*time.Second))
			ctx, leave := context.WithCancel(context.Background())
			w.enter(a, ctx, waiting(key, time.Minute))
			second := w.enter(b, w.t.Context(), waiting(key, time.Minute))
			go leave()
			if err := holder.release(key); err != nil {
				t.Fatal(err)
			}
			w.pass(50 * time.Millisecond)
			select {
			case got := <-second:
				if got.err != nil {
					t.Fatal(got.err)
				}
			default:
				// The first had been told before it left; whoever reads the answer gives it back.
				st, err := a.Get(key, locker.Handle{})
				if err != nil {
					t.Fatalf("round %d: neither has the lock: %v", round, err)
				}
				if err := a.Release(context.Background(), key, locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{}); err != nil {
					t.Fatal(err)
				}
				<-second
			}
			holder.stop()
			a.stop()
			b.stop()
		}
	})
}

// A hint that has come while a request is on its way calls for another at once,
// but not if nobody waits for that one's answer.
func TestCallersThatLeaveAsTheLockIsHandedToThemLeaveItFree(t *testing.T) {
	const rounds, keys = 50, 64
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		for range rounds {
			var all sync.WaitGroup
			for i := range keys {
				key := locker.Key(fmt.Sprint("k", i))
				s.take(want(key, 10*time.Second))
				ctx, leave := context.WithCancel(context.Background())
				waiter := w.enter(s, ctx, waiting(key, time.Minute))
				giveBack := func() {
					if err := s.release(key); err != nil {
						t.Error(err)
					}
				}
				all.Go(func() {
					time.Sleep(time.Second) // all at one instant
					leave()
					if got := <-waiter; got.err == nil {
						giveBack()
					}
				})
				all.Go(func() {
					time.Sleep(time.Second)
					giveBack()
				})
			}
			all.Wait()
			synctest.Wait()
			for i := range keys {
				key := locker.Key(fmt.Sprint("k", i))
				if o, err := w.store.Inspect(context.Background(), key); err != nil || o.State != locker.OccupancyFree {
					w.t.Fatalf("%s is %s (%v) though nobody holds it", key, o.State, err)
				}
			}
		}
	})
}

func TestNothingIsAskedForACallerThatLeavesDuringARequest(t *testing.T) {
	for name, leave := range map[string]func(*sidecar, context.CancelFunc){
		"gone":    func(_ *sidecar, leave context.CancelFunc) { leave() },
		"refused": func(s *sidecar, _ context.CancelFunc) { s.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.sidecar("holder").take(want("k", 10*time.Second))
				g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
				g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
					defer time.Sleep(200 * time.Millisecond)
					return w.store.AcquireInLine(ctx, c, turn)
				}
				s := w.sidecarOn("a", g, locker.Config{})
				ctx, cancel := context.WithCancel(context.Background())
				began := w.now()
				end := w.enter(s, ctx, waiting("k", time.Minute)) // hints are heard while it asks
				w.pass(50 * time.Millisecond)
				leave(s, cancel)
				if got := <-end; got.err == nil || got.at.Sub(began) > 200*time.Millisecond {
					t.Errorf("after %v: %v", got.at.Sub(began), got.err)
				}
				if n := g.called("ask"); n != 1 {
					t.Errorf("asked %d times, want once", n)
				}
				cancel()
			})
		})
	}
}

func TestWaitsEndAtOnceWhenTheSidecarRefusesNewLocks(t *testing.T) {
	for name, begin := range map[string]func(*sidecar){
		"drain": func(s *sidecar) { s.Drain() }, "shutdown": func(s *sidecar) { s.Refuse() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder, a, b := w.sidecar("holder"), w.sidecar("a"), w.sidecar("b")
				holder.take(want("k", 10*time.Second))
				var ends []<-chan granted
				for range 100 {
					ends = append(ends, w.enter(a, w.t.Context(), waiting("k", time.Minute)))
				}
				last := w.enter(b, w.t.Context(), waiting("k", time.Minute))
				began := w.now()
				begin(a)
				for _, end := range ends {
					got := <-end
					if !errors.Is(got.err, locker.ErrShuttingDown) && !errors.Is(got.err, locker.ErrDraining) || got.at != began {
						t.Errorf("after %v: %v", got.at.Sub(began), got.err)
					}
				}
				synctest.Wait()
				if err := holder.release("k"); err != nil {
					t.Fatal(err)
				}
				if got := <-last; got.err != nil || got.at != began {
					t.Errorf("the next pod's waiter, after %v: %v", got.at.Sub(began), got.err)
				}
			})
		})
	}
}

func TestLocksDroppedAtShutdownWakeWaitersElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.sidecar("a"), w.sidecar("b")
		a.Cleared(a.take(want("k", 10*time.Second)).ID)
		next := w.enter(b, w.t.Context(), waiting("k", time.Minute))
		began := w.now()
		a.shutDown(locker.ModeDrop)
		if got := <-next; got.err != nil || got.at != began {
			t.Errorf("after %v: %v", got.at.Sub(began), got.err)
		}
	})
}

func TestAWaiterOutlivesTroubleWithTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.sidecar("holder")
		holder.take(want("k", 10*time.Second))
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		got := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		g.set(func(*gate) { g.ask = hangAsk })
		w.pass(5 * time.Second)
		if err := holder.release("k"); err != nil {
			t.Fatal(err)
		}
		w.pass(5 * time.Second)
		g.set(func(*gate) { g.ask = nil })
		if out := <-got; out.err != nil {
			t.Fatal(out.err)
		}
		s.mustHold("k")
	})
}

func TestAWaitThatEndsInDoubtIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			_, _ = w.store.AcquireInLine(ctx, c, turn)
			return hangAsk(ctx, c, turn)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		err := s.tryTake(waiting("k", 2*time.Second))
		if !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Errorf("got %v, want ErrAcquireUnresolved", err)
		}
		w.pass(time.Second)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the lock is taken by nobody")
		}
	})
}

// The first request was executed and its answer lost, and the second, whose
// answer comes when the wait is over, finds that grant to be over.
func TestAWaitThatEndsWithALostAnswerIsUnresolved(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			g.set(func(*gate) {
				g.ask = func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error) {
					time.Sleep(250 * time.Millisecond)
					return locker.Grant{}, locker.ErrSpent
				}
			})
			return hangAsk(ctx, c, turn)
		}
		err := w.sidecarOn("a", g, locker.Config{}).tryTake(waiting("k", 500*time.Millisecond))
		if !errors.Is(err, locker.ErrAcquireUnresolved) {
			t.Errorf("got %v, want ErrAcquireUnresolved", err)
		}
	})
}

func TestAFirstRequestThatCertainlyFailsIsToldAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		g.ask = func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error) { return locker.Grant{}, errDown }
		s := w.sidecarOn("a", g, locker.Config{})
		began := w.now()
		if err := s.tryTake(waiting("k", time.Minute)); !errors.Is(err, errDown) || w.now() != began {
			t.Errorf("after %v: %v", w.now().Sub(began), err)
		}
	})
}

func TestValidityOfAWaitersGrantCountsFromTheRequestThatMayHaveTakenIt(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			g.set(func(*gate) { g.ask = hangAsk })
			_, _ = w.store.AcquireInLine(ctx, c, turn) // executed, and the answer is lost
			return hangAsk(ctx, c, turn)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		got := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		w.pass(3 * time.Second)
		g.set(func(*gate) { g.ask = nil })
		out := <-got
		if out.err != nil {
			t.Fatal(out.err)
		}
		if _, left, _ := w.store.Value("k"); out.st.ValidUntil > out.at.Add(left) {
			t.Errorf("valid for %v while the store keeps the key for %v", out.st.ValidUntil.Sub(out.at), left)
		}
	})
}

// refusedTwice has a waiter ask twice, each time in vain, and returns what
// delivers the second request again. From then on then decides.
func (w *world) refusedTwice(r locker.Request, then func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error)) (s *sidecar, got <-chan granted, again func()) {
	w.sidecar("holder").take(want(r.Key, time.Minute))
	g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
	second := make(chan func(), 1)
	g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
		if turn.Number != 0 {
			g.set(func(*gate) { g.ask = then })
			second <- func() { _, _ = w.store.AcquireInLine(context.WithoutCancel(ctx), c, turn) }
		}
		return w.store.AcquireInLine(ctx, c, turn)
	}
	s = w.sidecarOn("a", g, locker.Config{})
	got = w.enter(s, w.t.Context(), r)
	again = <-second
	w.pass(0)
	return s, got, again
}

// A request is answered that another holds the lock, and is delivered again
// when it is free. The next one is told that the lock is its own.
func TestARefusedRequestThatIsDeliveredAgainMakesNoLeaseLonger(t *testing.T) {
	for name, minHold := range map[string]time.Duration{"without a minimum hold": 0, "with one": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := waiting("k", time.Minute)
				r.TTL, r.MinHold = 3*time.Second, minHold
				s, got, again := w.refusedTwice(r, nil)
				w.store.Delete("k") // nobody is told
				again()
				taken, _, _ := w.store.Value("k")
				out := <-got
				value, left, _ := w.store.Value("k")
				if out.err != nil || value != taken || left > max(r.TTL, r.MinHold)-storeTimeout {
					t.Fatalf("the store keeps the key for %v, %v: it was not granted when the request came again, so this test shows nothing", left, out.err)
				}
				if lease := min(left, r.TTL); out.st.ValidUntil > out.at.Add(lease-locker.DriftMargin(lease)) {
					t.Errorf("valid for %v while the store keeps the key for %v", out.st.ValidUntil.Sub(out.at), left)
				}
				w.pass(3 * r.TTL)
				s.mustHold("k") // renewed in time all the same
			})
		})
	}
}

// What is left of such a lock may be over once the waiter hears of it.
func TestARefusedRequestThatTookTheLockUnheardGoesOnWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		r := waiting("k", time.Minute)
		r.TTL = time.Second
		slowly := func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			defer time.Sleep(storeTimeout - time.Millisecond)
			return w.store.AcquireInLine(ctx, c, turn)
		}
		_, got, again := w.refusedTwice(r, slowly)
		w.store.Delete("k")
		again()
		taken, _, _ := w.store.Value("k")
		out := <-got
		value, left, _ := w.store.Value("k")
		if out.err != nil || value == taken || out.st.ValidUntil > out.at.Add(left) {
			t.Errorf("valid for %v by the same token: %v, while the store keeps the key for %v: %v", out.st.ValidFor, value == taken, left, out.err)
		}
	})
}

func TestAReleaseHandsOverWithinThePodInOneCall(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		first := s.take(want("k", 10*time.Second))
		next := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		asks, releases := g.called("ask"), g.called("release")
		began := w.now()
		if err := s.Release(context.Background(), "k", locker.Handle{Fence: first.Fence}, locker.ReleaseOptions{}); err != nil {
			t.Fatal(err)
		}
		got := <-next
		if got.err != nil || got.at != began || got.st.Fence <= first.Fence {
			t.Errorf("after %v with fence %d: %v", got.at.Sub(began), got.st.Fence, got.err)
		}
		if g.called("ask") != asks || g.called("release") != releases || g.called("hand over") != 1 {
			t.Errorf("calls: %v", g.calls)
		}
		if s.seen.handed != 1 {
			t.Errorf("%d hand-overs counted", s.seen.handed)
		}
	})
}

func TestAHandOverObeysTheMinimumHold(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		r := want("k", 10*time.Second)
		r.MinHold = 5 * time.Second
		first := s.take(r)
		began := w.now()
		next := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		if err := s.Release(context.Background(), "k", locker.Handle{Fence: first.Fence}, locker.ReleaseOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := <-next; got.err != nil || got.at.Sub(began) < r.MinHold || got.at.Sub(began) > r.MinHold+time.Second {
			t.Errorf("granted after %v: %v", got.at.Sub(began), got.err)
		}
		if n := g.called("hand over"); n != 0 {
			t.Errorf("%d hand-overs were tried", n)
		}
	})
}

func TestNothingIsHandedOverOnceTheSidecarRefusesNewLocks(t *testing.T) {
	for name, begin := range map[string]func(*sidecar){
		"drain": func(s *sidecar) { s.Drain() }, "shutdown": func(s *sidecar) { s.Refuse() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
				for round := range 200 { // the release is often quicker than the waiter
					key := locker.Key(fmt.Sprint("k", round))
					s := w.sidecarOn("a", g, locker.Config{})
					s.take(want(key, 10*time.Second))
					next := w.enter(s, w.t.Context(), waiting(key, time.Minute))
					begin(s)
					if err := s.release(key); err != nil {
						t.Fatal(err)
					}
					if got := <-next; got.err == nil {
						t.Fatalf("round %d: granted", round)
					}
					s.stop()
				}
				if n := g.called("hand over"); n != 0 {
					t.Errorf("%d hand-overs were tried", n)
				}
			})
		})
	}
}

// The answer to the first request was lost, and its grant ends unused.
func TestAWaiterWhoseGrantIsUsedUpUnheardGoesOnWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			g.set(func(*gate) { g.ask = hangAsk })
			_, _ = w.store.AcquireInLine(ctx, c, turn)
			return hangAsk(ctx, c, turn)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		r := waiting("k", time.Minute)
		r.MinHold, r.TTL = 20*time.Second, 2*time.Second // the store keeps the key for longer than the lease
		got := w.enter(s, w.t.Context(), r)
		w.pass(4 * time.Second)
		g.set(func(*gate) { g.ask = nil })
		out := <-got
		if out.err != nil {
			t.Fatal(out.err)
		}
		if _, left, _ := w.store.Value("k"); out.st.ValidFor <= 0 || left < r.MinHold {
			t.Errorf("granted for %v, and the store keeps the key for %v", out.st.ValidFor, left)
		}
	})
}

func TestTheLimitOfWaitersRefusesMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sidecar("holder").take(want("k", 10*time.Second))
		s := w.sidecarOn("a", w.store, locker.Config{MaxWaiters: 2})
		w.enter(s, w.t.Context(), waiting("k", 5*time.Second))
		w.enter(s, w.t.Context(), waiting("k", 5*time.Second))
		if err := s.tryTake(waiting("k", 5*time.Second)); !errors.Is(err, locker.ErrTooManyWaiters) {
			t.Errorf("got %v", err)
		}
		w.pass(10 * time.Second)
		if err := s.tryTake(waiting("k", time.Second)); errors.Is(err, locker.ErrTooManyWaiters) {
			t.Error("those that have gone still count")
		}
	})
}

func TestAnOwnerThatWaitsIsBusy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sidecar("holder").take(want("k", 10*time.Second))
		s := w.sidecar("a")
		r := waiting("k", 5*time.Second)
		r.Owner = "w1"
		w.enter(s, w.t.Context(), r)
		if err := s.tryTake(r); !errors.Is(err, locker.ErrOwnerBusy) {
			t.Errorf("got %v", err)
		}
		w.pass(10 * time.Second)
	})
}

func TestWaitersOnAHeldLockAskTheStoreRarely(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		w.sidecar("holder").take(want("k", 10*time.Second))
		const pods, each = 4, 50
		for range pods {
			s := w.sidecarOn("a", g, locker.Config{})
			for range each {
				w.enter(s, w.t.Context(), waiting("k", time.Hour))
			}
		}
		w.pass(5 * time.Second)
		before := g.called("ask")
		w.pass(time.Minute)
		if rate := float64(g.called("ask")-before) / 60; rate > 9 {
			t.Errorf("%d waiters in %d pods ask %.1f times a second, want at most 9", pods*each, pods, rate)
		}
	})
}

func TestAThousandWaitingPodsAskThirtyTimesASecondAtMost(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		w.sidecar("holder").take(want("k", 10*time.Second))
		for range 1000 {
			w.enter(w.sidecarOn("a", g, locker.Config{}), w.t.Context(), waiting("k", time.Hour))
		}
		w.pass(10 * time.Second)
		before := g.called("ask")
		w.pass(10 * time.Minute)
		if rate := float64(g.called("ask")-before) / 600; rate > 30 {
			t.Errorf("they ask %.1f times a second", rate)
		}
	})
}

// The wake-up is sent while the sidecar is still connecting to hear it.
func TestAWakeUpThatWasMissedBeforeListeningBeganIsMadeUpFor(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.sidecar("holder")
		holder.take(want("k", 10*time.Second))
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store, connecting: 300 * time.Millisecond}
		began := w.now()
		next := w.enter(w.sidecarOn("a", g, locker.Config{}), w.t.Context(), waiting("k", time.Minute))
		w.pass(100 * time.Millisecond)
		if err := holder.release("k"); err != nil {
			t.Fatal(err)
		}
		if got := <-next; got.err != nil || got.at.Sub(began) != g.connecting {
			t.Errorf("granted after %v: %v", got.at.Sub(began), got.err)
		}
	})
}

// The answer to an earlier request says "held", and is slower than the word that
// the lock is free.
func TestAWakeUpThatOvertakesAnAnswerIsFollowed(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.sidecar("holder")
		holder.take(want("k", 10*time.Second))
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		slowly := func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
			defer time.Sleep(100 * time.Millisecond)
			return w.store.AcquireInLine(ctx, c, turn)
		}
		s := w.sidecarOn("a", g, locker.Config{})
		g.set(func(*gate) { g.ask = slowly })
		next := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		w.pass(50 * time.Millisecond)
		released := w.now()
		if err := holder.release("k"); err != nil {
			t.Fatal(err)
		}
		if got := <-next; got.err != nil || got.at.Sub(released) > 150*time.Millisecond {
			t.Errorf("granted after %v: %v", got.at.Sub(released), got.err)
		}
	})
}

// A grant gives up the place of the process if nobody else of it was known to
// wait when the grant was asked for.
func TestACallerThatComesAsThePlaceIsGivenUpIsNotForgotten(t *testing.T) {
	for name, leaves := range map[string]bool{"released": false, "given back": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
				s := w.sidecarOn("a", g, locker.Config{})
				s.take(want("k", 10*time.Second))
				ctx, cancel := context.WithCancel(w.t.Context())
				one := w.enter(s, ctx, waiting("k", time.Minute))
				g.set(func(*gate) {
					g.ask = func(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
						defer time.Sleep(100 * time.Millisecond)
						return w.store.AcquireInLine(ctx, c, turn)
					}
				})
				two := w.enter(s, w.t.Context(), waiting("k", time.Minute))
				if leaves {
					cancel()
				}
				defer cancel()
				if err := s.release("k"); err != nil {
					t.Fatal(err)
				}
				if got := <-one; got.err == nil {
					if err := s.release("k"); err != nil {
						t.Fatal(err)
					}
				}
				free := w.now()
				if got := <-two; got.err != nil || got.at.Sub(free) > 250*time.Millisecond {
					t.Errorf("granted after %v: %v", got.at.Sub(free), got.err)
				}
			})
		})
	}
}

func TestListeningEndsWhenNobodyWaitsAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.sidecar("holder")
		holder.take(want("k", 10*time.Second))
		g := &queueGate{gate: gate{Backend: w.store}, queue: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		w.enter(s, w.t.Context(), waiting("k", 2*time.Second))
		w.pass(time.Second)
		if n := g.listening(); n != 1 {
			t.Fatalf("%d listen", n)
		}
		w.pass(30 * time.Second)
		if n := g.listening(); n != 0 {
			t.Errorf("%d still listen", n)
		}
		// And it begins again.
		next := w.enter(s, w.t.Context(), waiting("k", time.Minute))
		w.pass(2 * time.Second)
		released := w.now()
		if err := holder.release("k"); err != nil {
			t.Fatal(err)
		}
		if got := <-next; got.err != nil || got.at != released {
			t.Errorf("woken after %v: %v", got.at.Sub(released), got.err)
		}
	})
}

// queueGate is a gate whose store keeps a line.
type queueGate struct {
	gate
	queue locker.Queue
	ask   func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error)
	ears  int

	connecting time.Duration // that Listen takes before it hears anything
}

func (g *queueGate) AcquireInLine(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
	g.mu.Lock()
	f := g.ask
	g.count("ask")
	g.mu.Unlock()
	if f == nil {
		f = g.queue.AcquireInLine
	}
	return f(ctx, c, turn)
}

func (g *queueGate) Leave(ctx context.Context, key locker.Key, turn locker.Turn) error {
	g.set(func(*gate) { g.count("leave") })
	return g.queue.Leave(ctx, key, turn)
}

func (g *queueGate) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, turn locker.Turn) (locker.Verdict, locker.Grant, error) {
	g.set(func(*gate) { g.count("hand over") })
	return g.queue.HandOver(ctx, s, c, turn)
}

func (g *queueGate) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	g.set(func(*gate) { g.ears++ })
	defer g.set(func(*gate) { g.ears-- })
	time.Sleep(g.connecting)
	g.queue.Listen(ctx, process, hear)
}

func (g *queueGate) listening() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ears
}

func hangAsk(ctx context.Context, _ locker.Claim, _ locker.Turn) (locker.Grant, error) {
	return locker.Grant{}, hang(ctx)
}

// TestPlacesAreGivenUpThoughTheProcessEndsRightAway: a command ends with its
// wait, and whoever is first in line without asking holds others up.
func TestPlacesAreGivenUpThoughTheProcessEndsRightAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sidecar("holder").take(want("k", 30*time.Second))
		for range 50 {
			s := w.sidecar("waiter")
			ctx, leave := context.WithCancel(context.Background())
			r := want("k", 30*time.Second)
			r.Wait = time.Minute
			var left sync.WaitGroup
			left.Go(func() { _, _, _ = s.Acquire(ctx, r) })
			w.pass(time.Millisecond)
			leave()
			left.Wait()
			s.stop()
			if o, err := w.store.Inspect(context.Background(), "k"); err != nil || o.QueueLength != 0 {
				t.Fatalf("%d places are left in line, %v", o.QueueLength, err)
			}
		}
	})
}
