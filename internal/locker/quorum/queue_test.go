package quorum_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

func (c *cluster) acquireInLine(claim locker.Claim, t locker.Turn) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
	defer cancel()
	return c.AcquireInLine(ctx, claim, t)
}

func turnOf(process string, number, call int64) locker.Turn {
	return locker.Turn{Process: process, Number: number, Call: call, WaitLeft: time.Minute}
}

// join puts a process into line for a key at the given nodes alone.
func (c *cluster) join(process string, key locker.Key, nodes ...int) {
	c.t.Helper()
	for _, i := range nodes {
		if _, err := c.nodes[i].AcquireInLine(c.t.Context(), claimFor(key), turnOf(process, 0, 1)); err == nil {
			c.t.Fatalf("%s has the key of node %d", process, i)
		}
	}
}

// listen has a process hear hints until stop is called.
func (c *cluster) listen(process string, hear func(locker.Hint)) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Listen(ctx, process, hear) })
	synctest.Wait()
	return func() {
		cancel()
		wg.Wait()
	}
}

// Where every member has another head of its line, nobody may obey all of them.
func TestWhoIsFirstAtOneMemberIsGrantedThoughOthersAreFirstElsewhere(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		defer c.listen("a", func(locker.Hint) {})()
		defer c.listen("b", func(locker.Hint) {})()
		defer c.listen("d", func(locker.Hint) {})()
		holder := claimFor("k")
		c.mustAcquire(holder)
		synctest.Wait()
		c.join("a", "k", 0)
		c.join("b", "k", 1)
		c.join("d", "k", 2)
		wantErr(t, "release", c.release(surrenderOf(holder)), nil)
		synctest.Wait()

		claim := claimFor("k")
		_, err := c.acquire(claim)
		var held *locker.HeldError
		if !errors.As(err, &held) || !held.Queued {
			t.Errorf("who is first nowhere: %v, want that others are in line", err)
		}
		if _, err := c.acquireInLine(claimFor("k"), turnOf("b", 1, 2)); err != nil {
			t.Errorf("who is first at one: %v, want a grant", err)
		}
	})
}

// A minority's line without a head of its own is no reason to refuse.
func TestAMinorityInWhichOthersAreFirstIsNotWaitedFor(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		defer c.listen("a", func(locker.Hint) {})()
		holder := claimFor("k")
		c.mustAcquire(holder)
		synctest.Wait()
		c.join("a", "k", 1)
		wantErr(t, "release", c.release(surrenderOf(holder)), nil)
		synctest.Wait()
		c.mustAcquire(claimFor("k"))
	})
}

func TestAPlaceHasTheGreatestNumberThatAMemberGave(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		holder := claimFor("k")
		c.mustAcquire(holder)
		synctest.Wait()
		for _, p := range []string{"x", "y", "z"} {
			c.join(p, "k", 2)
		}
		claim := claimFor("k")
		var held *locker.HeldError
		c.each(down, 1)
		if _, err := c.acquireInLine(claim, turnOf("p", 0, 1)); !errors.As(err, &held) || held.Standing == nil || held.Standing.Number != 4 || held.Standing.Ahead != 3 {
			t.Fatalf("%v, want number 4 with 3 places ahead", err)
		}
		c.mend()
		if _, err := c.acquireInLine(claim, turnOf("p", 4, 2)); !errors.As(err, &held) || held.Standing.Number != 4 {
			t.Fatalf("asked again: %v, want number 4", err)
		}
		synctest.Wait()
		// Whoever comes later has a greater number at all.
		for i, n := range c.nodes {
			_, err := n.AcquireInLine(c.t.Context(), claimFor("k"), turnOf("later", 0, 1))
			if !errors.As(err, &held) || held.Standing.Number <= 4 {
				t.Errorf("node %d: %v, want a number above 4", i, err)
			}
		}
	})
}

// wakes counts what a process hears, and when.
type wakes struct {
	mu sync.Mutex
	at []time.Time
}

func (w *wakes) hear(h locker.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Kind == locker.HintWake {
		w.at = append(w.at, time.Now())
	}
}

func (w *wakes) times() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.at)
}

func TestAWaiterIsWokenOnceByAMajority(t *testing.T) {
	for _, tt := range []struct {
		name   string
		joined []int // the nodes whose lines it is in
		within time.Duration
	}{
		{"all wake it", []int{0, 1, 2}, 0},
		{"a majority wakes it", []int{0, 2}, time.Millisecond},
		{"one wakes it", []int{1}, 10 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 3, nil, func(c *cluster) {
				var w wakes
				stop := c.listen("p", w.hear)
				for round, key := range []locker.Key{"x", "y", "z"} {
					holder := claimFor(key)
					c.mustAcquire(holder)
					synctest.Wait()
					c.join("p", key, tt.joined...)
					released := time.Now()
					wantErr(t, "release", c.release(surrenderOf(holder)), nil)
					time.Sleep(50 * time.Millisecond)
					at := w.times()
					if len(at) != round+1 {
						t.Fatalf("woken %d times in %d rounds", len(at), round+1)
					}
					if late := at[round].Sub(released); late != tt.within {
						t.Errorf("woken after %v, want %v", late, tt.within)
					}
				}
				stop()
			})
		})
	}
}

func TestAListenerHearsThatItListensThoughAMinorityDoesNot(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		// Nothing is heard of node 2, as if it were down.
		c.faults[2].SetPlan(func(call lockertest.Call) lockertest.Fault {
			return lockertest.Fault{LoseReply: call.Op == lockertest.OpHint}
		})
		var mu sync.Mutex
		listening := 0
		stop := c.listen("p", func(h locker.Hint) {
			mu.Lock()
			defer mu.Unlock()
			if h.Kind == locker.HintListening {
				listening++
			}
		})
		time.Sleep(time.Second)
		stop()
		if listening != 1 {
			t.Errorf("told %d times that it listens, want once", listening)
		}
	})
}

func TestALockIsHandedOverAtAMajority(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		holder := claimFor("k")
		first := c.mustAcquire(holder).Fence
		synctest.Wait()
		c.each(down, 0)
		next := claimFor("k")
		ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
		defer cancel()
		verdict, g, err := c.HandOver(ctx, surrenderOf(holder), next, turnOf("p", 0, 1))
		if verdict.Err != nil || err != nil || g.Fence <= first {
			t.Fatalf("verdict %v, fence %d after %d, %v; want a grant", verdict.Err, g.Fence, first, err)
		}
		synctest.Wait() // all have been asked
		c.wantAt("the old one, where nobody answered", holder, 0)
		c.mend()
		time.Sleep(time.Second)
		c.wantAt("the old one", holder)
		c.wantAt("the new one", next, 1, 2)
		wantErr(t, "renew", c.renew(renewalOf(renewed(next))), nil)
		synctest.Wait()
		c.wantAt("the new one, renewed", next, 0, 1, 2)
	})
}

// A hand-over that is sent again finds the lock gone because the first time it
// gave it back.
func TestAHandOverThatWasCarriedOutUnansweredIsNoLoss(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		defer c.listen("a", func(locker.Hint) {})()
		holder := claimFor("k")
		c.mustAcquire(holder)
		synctest.Wait()
		c.join("a", "k", 0, 1, 2)
		for _, i := range []int{0, 1} {
			lost := false
			c.faults[i].SetPlan(func(call lockertest.Call) lockertest.Fault {
				lose := call.Op == lockertest.OpHandOver && !lost
				lost = lost || lose
				return lockertest.Fault{LoseReply: lose}
			})
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
		defer cancel()
		verdict, _, err := c.HandOver(ctx, surrenderOf(holder), claimFor("k"), turnOf("p", 0, 1))
		var held *locker.HeldError
		if !errors.As(err, &held) || !held.Queued {
			t.Errorf("the claim: %v, want that others are in line", err)
		}
		wantErr(t, "what was given back", verdict.Err, nil)
		c.wantAt("given back", holder)
	})
}
