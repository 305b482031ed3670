package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

func TestAReleaseThatOvertakesItsClaimLeavesNothing(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.each(lockertest.Fault{RequestDelay: 60 * time.Millisecond, ReplyDelay: 60 * time.Millisecond}, 2)
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait() // the claim is on its way
		c.mend()
		wantErr(t, "release", c.release(surrenderOf(claim)), nil)
		time.Sleep(90 * time.Millisecond)
		c.wantAt("the claim has come after the release", claim, 2)
		time.Sleep(40 * time.Millisecond)
		c.wantAt("once it has been answered", claim)
	})
}

func TestAReleaseIsRepeatedUntilEveryMemberHasAnswered(t *testing.T) {
	inCluster(t, 5, nil, func(c *cluster) {
		var claims []locker.Claim
		for _, key := range []locker.Key{"a", "b", "c"} {
			claims = append(claims, claimFor(key))
			c.mustAcquire(claims[len(claims)-1])
		}
		synctest.Wait()
		c.each(down, 3)
		c.each(hung, 4)
		for _, claim := range claims {
			wantErr(t, "release", c.release(surrenderOf(claim)), nil)
		}
		time.Sleep(10 * time.Second)
		c.wantAt("while two do not answer", claims[0], 3, 4)
		before, _ := c.faults[3].Counts()
		time.Sleep(10 * time.Second)
		if after, _ := c.faults[3].Counts(); after-before > 12 {
			t.Errorf("a node that is down was called %d times in ten seconds", after-before)
		}
		c.mend()
		time.Sleep(2 * time.Second)
		for _, claim := range claims {
			c.wantAt("once they do", claim)
		}
	})
}

// An unlock must not pretend: it was ours unless a majority says otherwise.
// A member that does not answer for long leaves no key taken for longer.
func TestAMinimumHoldEndsInTimeAtAMemberThatAnswersLate(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		claim.Keep = 5 * time.Minute
		c.mustAcquire(claim)
		synctest.Wait()
		c.each(hung, 0)
		s := surrenderOf(claim)
		s.Keep = 90 * time.Second
		ends := time.Now().Add(s.Keep)
		wantErr(t, "release", c.release(s), nil)
		time.Sleep(time.Minute)
		c.mend()
		time.Sleep(2 * time.Second)
		for i, n := range c.nodes {
			value, left, _ := n.Value("k")
			if late := time.Now().Add(left).Sub(ends); value == claim.Token.Reveal() || left <= 0 || late > storeTimeout {
				t.Errorf("node %d keeps the key taken for %v longer than the minimum hold", i, late)
			}
		}
	})
}

func TestTheVerdictOnAReleaseIsThatOfAMajority(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lack    []int // nodes that lose the key
		other   []int // nodes that another has taken
		down    []int
		want    error
		unknown bool
		nothing bool // was done for certain
	}{
		{name: "at all"},
		{name: "at a majority", lack: []int{0}},
		{name: "at a minority", lack: []int{0, 2}, want: locker.ErrGone},
		{name: "taken by another", lack: []int{0}, other: []int{1, 2}, want: locker.ErrTaken},
		{name: "a minority is down", down: []int{1}},
		{name: "one has it, one not, one is down", lack: []int{0}, down: []int{1}},
		{name: "two lack it, one is down", lack: []int{0, 2}, down: []int{1}, want: locker.ErrGone},
		{name: "a majority is down", down: []int{0, 1}, unknown: true},
		{name: "one lacks it, and two are down", lack: []int{0}, down: []int{1, 2}, unknown: true, nothing: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 3, nil, func(c *cluster) {
				claim := claimFor("k")
				c.mustAcquire(claim)
				synctest.Wait()
				for _, i := range tt.lack {
					c.nodes[i].Delete("k")
				}
				for _, i := range tt.other {
					c.nodes[i].Put("k", "ls1/other/x", ttl)
				}
				c.each(down, tt.down...)
				err := c.release(surrenderOf(claim))
				if tt.unknown {
					wantFailure(t, "release", err, locker.StoreNoQuorum, tt.nothing)
				} else {
					wantErr(t, "release", err, tt.want)
				}
				synctest.Wait()
				if !tt.nothing {
					c.wantAt("afterwards", claim, tt.down...)
				}
			})
		})
	}
}

func TestARenewalCountsIfAMajorityConfirmsIt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lack    []int
		other   []int
		down    []int
		want    error
		unknown bool
		healed  []int
	}{
		{name: "at all"},
		{name: "lost at one", lack: []int{1}, healed: []int{1}},
		{name: "lost at one, while one is down", lack: []int{1}, down: []int{4}, healed: []int{1}},
		{name: "lost at two", lack: []int{1, 3}, healed: []int{1, 3}},
		{name: "lost at a majority", lack: []int{1, 3, 4}, want: locker.ErrGone},
		{name: "taken at one", other: []int{1}},
		{name: "taken at a majority", other: []int{1, 2, 4}, want: locker.ErrTaken},
		{name: "taken or lost at a majority", lack: []int{0}, other: []int{1, 2}, want: locker.ErrTaken},
		{name: "lost at two, while one is down", lack: []int{1, 3}, down: []int{4}, unknown: true},
		{name: "a majority is down", down: []int{0, 1, 2}, unknown: true},
		{name: "lost at a majority, the rest is down", lack: []int{1, 3, 4}, down: []int{0, 2}, want: locker.ErrGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 5, nil, func(c *cluster) {
				claim := claimFor("k")
				fence := c.mustAcquire(claim).Fence
				synctest.Wait()
				for _, i := range tt.lack {
					c.nodes[i].Wipe()
				}
				for _, i := range tt.other {
					c.nodes[i].Put("k", "ls1/other/x", ttl)
				}
				c.each(down, tt.down...)
				time.Sleep(time.Second)
				r := renewalOf(claim)
				r.Fence = fence
				err := c.renew(r)
				if tt.unknown {
					wantFailure(t, "renew", err, locker.StoreNoQuorum, false)
				} else {
					wantErr(t, "renew", err, tt.want)
				}
				synctest.Wait()
				for i, n := range c.nodes {
					value, left, _ := n.Value("k")
					lost, healed := contains(tt.lack, i), contains(tt.healed, i)
					if ours := value == claim.Token.Reveal(); ours != (!lost && !contains(tt.other, i) || healed) {
						t.Errorf("node %d has the token: %v (lost: %v)", i, ours, lost)
					}
					if healed && left != ttl {
						t.Errorf("node %d has it back for %v, want %v", i, left, ttl)
					}
				}
				for _, i := range tt.healed {
					if g, err := c.nodes[i].Acquire(c.t.Context(), renewed(claim)); err != nil || g.Fence != fence {
						t.Errorf("node %d knows fence %d (%v), want that of the grant, %d", i, g.Fence, err, fence)
					}
				}
			})
		})
	}
}

func contains(some []int, i int) bool {
	for _, other := range some {
		if other == i {
			return true
		}
	}
	return false
}

// renewed is a claim that may be executed now.
func renewed(c locker.Claim) locker.Claim {
	c.NotAfter = lockertest.BubbleClock().Add(storeTimeout)
	return c
}

func TestNothingIsPutBackByAVerificationOrAfterItsTime(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait()
		c.nodes[1].Wipe()
		r := renewalOf(claim)
		r.Keep = 0
		wantErr(t, "verify", c.renew(r), nil)
		synctest.Wait()
		c.wantAt("after a verification", claim, 0, 2)

		// The remedy is on its way for longer than the lease lasts.
		c.faults[1].SetPlan(func(call lockertest.Call) lockertest.Fault {
			if call.Op == lockertest.OpHeal {
				return lockertest.Fault{RequestDelay: 2 * storeTimeout}
			}
			return lockertest.Fault{}
		})
		wantErr(t, "renew", c.renew(renewalOf(claim)), nil)
		time.Sleep(3 * storeTimeout)
		c.wantAt("after a remedy that came late", claim, 0, 2)
	})
}

func TestAReleaseCoversARemedyThatIsOnItsWay(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait()
		c.nodes[1].Wipe()
		c.faults[1].SetPlan(func(call lockertest.Call) lockertest.Fault {
			if call.Op == lockertest.OpHeal {
				return lockertest.Fault{RequestDelay: 60 * time.Millisecond, ReplyDelay: 60 * time.Millisecond}
			}
			return lockertest.Fault{}
		})
		wantErr(t, "renew", c.renew(renewalOf(claim)), nil)
		synctest.Wait() // the remedy is on its way
		wantErr(t, "release", c.release(surrenderOf(claim)), nil)
		time.Sleep(90 * time.Millisecond)
		c.wantAt("the remedy has come after the release", claim, 1)
		time.Sleep(40 * time.Millisecond)
		c.wantAt("once it has been answered", claim)
	})
}

func TestABatchHasAVerdictOfItsMajorityForEachLock(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		var renewals []locker.Renewal
		for i := range 300 {
			claim := claimFor(locker.Key(rune('a' + i)))
			c.mustAcquire(claim)
			renewals = append(renewals, renewalOf(claim))
		}
		synctest.Wait()
		for i, r := range renewals {
			for n := range i % 4 {
				c.nodes[n].Delete(r.Key)
			}
		}
		for i, v := range c.Renew(c.t.Context(), renewals) {
			var want error
			if i%4 >= 2 {
				want = locker.ErrGone
			}
			wantErr(t, string(renewals[i].Key), v.Err, want)
		}
		synctest.Wait()
		for i, r := range renewals {
			if _, _, there := c.nodes[0].Value(r.Key); there != (i%4 < 2) {
				t.Errorf("lock %d, lost at %d, is at node 0 again: %v", i, i%4, there)
			}
		}
	})
}
