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
	return b.acquire(ctx, claim, nil)
}

// acquire tries once, or waits in line if there is a turn.
func (b *Backend) acquire(ctx context.Context, claim locker.Claim, turn *locker.Turn) (locker.Grant, error) {
	n := b.nodeOf(claim.Key)
	ctx, cancel := n.acquire.bounded(ctx)
	defer cancel()
	grant, err := b.acquireOnce(ctx, n, claim, turn)
	if errors.Is(err, locker.ErrLate) && n.now() < claim.NotAfter {
		// Late by what we knew of the server's clock, which the answer has
		// corrected.
		grant, err = b.acquireOnce(ctx, n, claim, turn)
	}
	if err != nil {
		return locker.Grant{}, err
	}
	grant.Step = n.clock.takeStep()
	return grant, nil
}

func (b *Backend) acquireOnce(ctx context.Context, n *node, claim locker.Claim, turn *locker.Turn) (locker.Grant, error) {
	c := &call{
		script: acquireScript,
		keys:   []string{b.keys.lock(claim.Key), b.keys.record(claim.Key)},
		args: func(at func(locker.Instant) string) []string {
			return append([]string{b.keys.prefix}, claimArgs(claim, turn, at)...)
		},
	}
	if err := n.acquire.do(ctx, c); err != nil {
		return locker.Grant{}, err
	}
	return c.outcome(turn != nil)
}

// claimArgs are a script's arguments for a claim.
func claimArgs(claim locker.Claim, turn *locker.Turn, at func(locker.Instant) string) []string {
	args := []string{
		claim.Token.Reveal(), millis(claim.Keep), strconv.FormatInt(int64(claim.Floor), 10),
		at(claim.NotAfter), claim.Note, millis(recordOutlives),
	}
	if turn == nil {
		return append(args, "")
	}
	return append(args, turnArgs(*turn)...)
}

// outcome reads the answer to a claim.
func (c *call) outcome(waits bool) (locker.Grant, error) {
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
		return locker.Grant{}, c.refusal(o, waits, 7)
	case "queued":
		length, err := c.number(1)
		if err != nil {
			return locker.Grant{}, err
		}
		return locker.Grant{}, c.refusal(locker.Occupancy{State: locker.OccupancyFree, QueueLength: int(length)}, waits, 2)
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
