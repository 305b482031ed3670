package quorum_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// busy is a member that finds no time for its first claims.
type busy struct {
	locker.Member
	left atomic.Int32
}

func (b *busy) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	if b.left.Add(-1) >= 0 {
		<-ctx.Done()
		return locker.Grant{}, &locker.StoreError{Reason: locker.StoreBusy, Certain: true}
	}
	return b.Member.Acquire(ctx, c)
}

func (b *busy) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	if b.left.Add(-1) < 0 {
		return b.Member.Renew(ctx, renewals)
	}
	<-ctx.Done()
	verdicts := make([]locker.Verdict, len(renewals))
	for i := range verdicts {
		verdicts[i].Err = &locker.StoreError{Reason: locker.StoreBusy, Certain: true}
	}
	return verdicts
}

// The time of a request to a member ends when its caller's does. What is certain
// then is told, whichever of the two is noticed first.
func TestWhatIsCertainWhenTheTimeIsOverIsTold(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		members := membersOf(c, func(m locker.Member) locker.Member {
			b := &busy{Member: m}
			b.left.Store(math.MaxInt32)
			return b
		})
		c.Backend = c.another(members)
		for range 100 {
			claim := claimFor("k")
			_, err := c.acquire(claim)
			wantFailure(t, "acquire", err, locker.StoreBusy, true)
			wantFailure(t, "renew", c.renew(renewalOf(claim)), locker.StoreNoQuorum, true)
		}
	})
}

// A member that had no time for a claim is asked again, for as long as its vote
// decides: a machine that stands still for a moment costs nobody a lock.
func TestAMemberThatHadNoTimeIsAskedAgain(t *testing.T) {
	for times, granted := range map[int32]bool{1: true, 2: false} { // two take all of the time
		inCluster(t, 3, nil, func(c *cluster) {
			c.each(down, 0)
			member := &busy{}
			member.left.Store(times)
			members := membersOf(c, func(m locker.Member) locker.Member { return m })
			member.Member = members[1].Member
			members[1].Member = member
			c.Backend = c.another(members)
			_, err := c.acquire(claimFor("k"))
			if granted != (err == nil) {
				t.Errorf("no time for %d claims: %v", times, err)
			}
		})
	}
}
