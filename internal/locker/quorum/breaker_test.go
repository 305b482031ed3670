package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func breachOf(s locker.Sighting) locker.Breach {
	return locker.Breach{Key: "k", Token: s.Token, Holder: "pod"}
}

// Whoever is on call breaks a lock while servers are down: with a majority it
// is as good as broken at all, without one nobody is told that it is.
func TestALockIsBrokenByAMajority(t *testing.T) {
	for _, nodes := range minorities(5) {
		inCluster(t, 5, nil, func(c *cluster) {
			claim := claimFor("k")
			c.mustAcquire(claim)
			synctest.Wait()
			c.each(down, nodes...)
			seen, err := c.Sight(c.t.Context(), "k")
			if err != nil || seen.State != locker.OccupancyHeld || seen.Token != claim.Token {
				t.Fatalf("%v down: sighted %q, %v", nodes, seen.State, err)
			}
			time.Sleep(ttl / 3)
			if left, err := c.Break(c.t.Context(), breachOf(seen)); err != nil || left != 2*ttl/3 {
				t.Errorf("%v down: broken for %v, %v; want what was left of %v", nodes, left, err, ttl)
			}
			c.mend()
			wantErr(t, "renew", c.renew(renewalOf(claim)), locker.ErrTaken)
			wantErr(t, "release", c.release(surrenderOf(claim)), locker.ErrTaken)
			time.Sleep(2*ttl/3 - time.Millisecond)
			if _, err := c.acquire(claimFor("k")); err == nil {
				t.Errorf("%v down: somebody else had it before its lease could have ended", nodes)
			}
			time.Sleep(time.Second)
			c.mustAcquire(claimFor("k"))
		})
	}
}

func TestWithoutAMajorityNoLockIsBroken(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait()
		seen, err := c.Sight(c.t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.each(down, 0, 1)
		_, err = c.Break(c.t.Context(), breachOf(seen))
		wantFailure(t, "break", err, locker.StoreNoQuorum, false)
		_, err = c.Sight(c.t.Context(), "k")
		wantFailure(t, "sight", err, locker.StoreNoQuorum, true)
		c.mend()
		wantErr(t, "the holder goes on with those that were not asked", c.renew(renewalOf(claim)), nil)
		if _, err := c.Break(c.t.Context(), breachOf(seen)); err != nil {
			t.Errorf("broken again, with all: %v", err)
		}
		wantErr(t, "renew", c.renew(renewalOf(claim)), locker.ErrTaken)
	})
}

// A lock that only a minority has is nobody's; what the servers have is not one
// lock to break.
func TestWhatNoMajorityHasIsNotSightedAsHeld(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		for i, n := range c.nodes {
			n.Put("k", "ls1/pod/"+string(rune('a'+i)), ttl)
		}
		if seen, err := c.Sight(c.t.Context(), "k"); err != nil || seen.State != locker.OccupancyUnknown {
			t.Errorf("sighted %q, %v; want unknown", seen.State, err)
		}
	})
}

// plain hides that a member can break locks.
type plain struct{ locker.Member }

func TestAMemberThatCannotBreakLocksIsTold(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		b := c.another(membersOf(c, func(m locker.Member) locker.Member { return plain{m} }))
		_, err := b.Sight(c.t.Context(), "k")
		wantErr(t, "sight", err, locker.ErrUnsupported)
		_, err = b.Break(c.t.Context(), locker.Breach{Key: "k"})
		wantErr(t, "break", err, locker.ErrUnsupported)
	})
}

// A lock that a member had lost is put back there
// when its holder renews it; a breach before that leaves nothing to put back.
func TestABrokenLockIsNotPutBack(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait()
		c.nodes[2].Wipe()
		seen, _ := c.Sight(c.t.Context(), "k")
		if _, err := c.Break(c.t.Context(), breachOf(seen)); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "renew", c.renew(renewalOf(claim)), locker.ErrTaken)
		synctest.Wait()
		c.wantAt("after the breach", claim)
	})
}

func TestWhatIsBrokenAtOneMemberIsNotFreeThere(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.each(down, 1)
		c.mustAcquire(claim)
		synctest.Wait()
		if _, err := c.nodes[0].Break(c.t.Context(), locker.Breach{Key: "k", Token: claim.Token}); err != nil {
			t.Fatal(err)
		}
		c.mend()
		c.each(down, 2)
		o, err := c.Inspect(c.t.Context(), "k")
		if err != nil || o.State != locker.OccupancyUnknown {
			t.Errorf("broken at one, free at another: %v, %v; want unknown", o.State, err)
		}
	})
}
