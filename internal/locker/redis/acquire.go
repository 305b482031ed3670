package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Acquire implements [locker.Backend].
func (b *Backend) Acquire(ctx context.Context, claim locker.Claim) (locker.Grant, error) {
	n := b.nodeOf(claim.Key)
	ctx, cancel := n.acquire.bounded(ctx)
	defer cancel()
	grant, err := b.acquireOnce(ctx, n, claim)
	if errors.Is(err, locker.ErrLate) && n.now() < claim.NotAfter {
		// Late by what we knew of the server's clock, which the answer has
		// corrected.
		grant, err = b.acquireOnce(ctx, n, claim)
	}
	if err != nil {
		return locker.Grant{}, err
	}
	grant.Step = n.clock.takeStep()
	return grant, nil
}

func (b *Backend) acquireOnce(ctx context.Context, n *node, claim locker.Claim) (locker.Grant, error) {
	c := &call{
		script: acquireScript,
		keys:   []string{b.keys.lock(claim.Key), b.keys.record(claim.Key)},
		args: func(at func(locker.Instant) string) []string {
			return []string{
				claim.Token.Reveal(), millis(claim.Keep), strconv.FormatInt(int64(claim.Floor), 10),
				at(claim.NotAfter), claim.Note, millis(recordOutlives),
			}
		},
	}
	if err := n.acquire.do(ctx, c); err != nil {
		return locker.Grant{}, err
	}
	verdict, err := c.text(0)
	if err != nil {
		return locker.Grant{}, err
	}
	switch verdict {
	case "granted":
		return c.grant()
	case "held":
		o, err := c.occupancy()
		if err != nil {
			return locker.Grant{}, err
		}
		return locker.Grant{}, &locker.HeldError{Occupancy: o}
	case "late":
		return locker.Grant{}, locker.ErrLate
	case "spent":
		return locker.Grant{}, locker.ErrSpent
	case "conflict-type":
		return locker.Grant{}, fmt.Errorf("%w: a value of another type", locker.ErrKeyConflict)
	case "conflict-ttl":
		return locker.Grant{}, fmt.Errorf("%w: a value without a time to live", locker.ErrKeyConflict)
	}
	return locker.Grant{}, unreadable("the answer to an acquire is none of those known")
}

func (c *call) grant() (locker.Grant, error) {
	fence, err := c.number(1)
	if err != nil {
		return locker.Grant{}, err
	}
	if fence <= 0 || locker.Fence(fence) > locker.MaxFence {
		return locker.Grant{}, unreadable("the fencing token is out of range")
	}
	return locker.Grant{Fence: locker.Fence(fence), Reading: locker.Reading{UnixMicro: c.micros}}, nil
}
