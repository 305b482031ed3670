package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
)

// Each grant is decided by another majority, often in a process that knows
// nothing of the members' clocks, which are far apart.
func TestFencesRiseWhicheverMajorityGrants(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, apart := range []time.Duration{0, time.Millisecond, time.Hour} {
			t.Run(fmt.Sprint(n, apart), func(t *testing.T) {
				inCluster(t, n, func(i int) time.Duration { return apart * time.Duration(i%3) }, func(c *cluster) {
					var members []quorum.Member
					for _, f := range c.faults {
						members = append(members, quorum.Member{Member: f.Member()})
					}
					first, last := c.Backend, locker.Fence(0)
					for range 200 {
						c.mend()
						all := minorities(n)
						c.each(down, all[rand.IntN(len(all))]...)
						if rand.IntN(3) == 0 {
							c.Backend = c.another(members)
						}
						claim := claimFor("k")
						fence := c.mustAcquire(claim).Fence
						if fence <= last {
							t.Fatalf("fence %d after %d", fence, last)
						}
						if again := c.mustAcquire(claim).Fence; again != fence {
							t.Fatalf("sent again: fence %d, was %d", again, fence)
						}
						last = fence
						c.mend()
						wantErr(t, "release", c.release(surrenderOf(claim)), nil)
						// A claim that is sent late, as to a member that answered just
						// when the others had, is taken back once no more can come.
						time.Sleep(2 * storeTimeout)
						c.Backend = first
					}
				})
			})
		}
	}
}

func TestAFenceIsToldOnceAMajorityHasRecordedIt(t *testing.T) {
	inCluster(t, 3, func(i int) time.Duration { return time.Duration(i) * time.Hour }, func(c *cluster) {
		var raises atomic.Int32
		for _, f := range c.faults {
			f.SetPlan(func(call lockertest.Call) lockertest.Fault {
				if call.Op == lockertest.OpRaise {
					raises.Add(1)
					return lockertest.Fault{RequestDelay: trip}
				}
				return lockertest.Fault{}
			})
		}
		claim := claimFor("k")
		var fence locker.Fence
		d := took(func() { fence = c.mustAcquire(claim).Fence })
		if raises.Load() == 0 || d < trip {
			t.Errorf("told after %v and %d raises, want that they were awaited", d, raises.Load())
		}
		recorded := 0
		for _, n := range c.nodes {
			if g, err := n.Acquire(c.t.Context(), claim); err == nil && g.Fence == fence {
				recorded++
			}
		}
		if recorded < 2 {
			t.Errorf("%d members have recorded the fence when it is told", recorded)
		}
	})
}

// Members whose clocks are less than the lead apart agree at once.
func TestAGrantTakesOneTripWhereTheClocksAgreeRoughly(t *testing.T) {
	inCluster(t, 5, func(i int) time.Duration { return time.Duration(i) * 100 * time.Millisecond }, func(c *cluster) {
		for i := range c.nodes {
			c.each(lockertest.Fault{RequestDelay: trip / 2, ReplyDelay: trip / 2}, i)
		}
		c.mustAcquire(claimFor("to learn the clocks"))
		for i := range 20 {
			claim := claimFor(locker.Key(fmt.Sprint("k", i%3)))
			if d := took(func() { c.mustAcquire(claim) }); d > trip {
				t.Errorf("grant %d took %v", i, d)
			}
			time.Sleep(trip)
			wantErr(t, "release", c.release(surrenderOf(claim)), nil)
			time.Sleep(trip)
		}
	})
}

func TestAMadClockOfAMinoritySpoilsNoFence(t *testing.T) {
	mad := 10 * 365 * 24 * time.Hour
	inCluster(t, 3, func(i int) time.Duration { return mad * time.Duration(i/2) }, func(c *cluster) {
		c.each(down, 2)
		c.mustAcquire(claimFor("to learn the clocks"))
		c.mend()
		for range 10 {
			claim := claimFor("k")
			g := c.mustAcquire(claim)
			if most := time.Now().Add(time.Minute).UnixMicro(); int64(g.Fence) > most || g.UnixMicro > most {
				t.Errorf("fence %d and clock %d, which is in the far future", g.Fence, g.UnixMicro)
			}
			wantErr(t, "release", c.release(surrenderOf(claim)), nil)
			synctest.Wait()
		}
	})
}

func TestAFenceIsNotBelowTheFloor(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.mustAcquire(claimFor("to learn the clocks"))
		claim := claimFor("k")
		claim.Floor = locker.Fence(time.Now().Add(time.Hour).UnixMicro())
		if g := c.mustAcquire(claim); g.Fence < claim.Floor {
			t.Errorf("fence %d, the floor is %d", g.Fence, claim.Floor)
		}
	})
}
