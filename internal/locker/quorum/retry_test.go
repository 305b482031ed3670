package quorum_test

import (
	"context"
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
