package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Acquire implements [locker.Backend].
func (b *Backend) Acquire(ctx context.Context, claim locker.Claim) (locker.Grant, error) {
	return b.acquire(ctx, claim, nil)
}

// acquire tries once, or waits in line if there is a turn.
func (b *Backend) acquire(ctx context.Context, claim locker.Claim, turn *locker.Turn) (locker.Grant, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	grant, err := b.acquireOnce(ctx, claim, turn)
	if errors.Is(err, locker.ErrLate) && b.now() < claim.NotAfter {
		// Late by what we knew of the server's clock, which the answer has
		// corrected.
		grant, err = b.acquireOnce(ctx, claim, turn)
	}
	return grant, err
}

func (b *Backend) acquireOnce(ctx context.Context, claim locker.Claim, turn *locker.Turn) (locker.Grant, error) {
	var c *call
	c = &call{
		replicated: true,
		script:     acquireScript,
		keys:       []string{b.keys.lock(claim.Key)},
		companions: func() []string { return b.keys.companions(claim.Key) },
		args: func(at func(locker.Instant) string) []string {
			return append([]string{b.keys.prefix}, claimArgs(claim, turn, at, b.guardOf(c.run))...)
		},
	}
	if err := b.send(ctx, toAcquire, c); err != nil {
		return locker.Grant{}, err
	}
	grant, err := c.outcome(turn != nil)
	if err != nil {
		return locker.Grant{}, err
	}
	return b.acknowledged(ctx, claim, c, grant)
}

// claimArgs are a script's arguments for a claim.
func claimArgs(claim locker.Claim, turn *locker.Turn, at func(locker.Instant) string, guard string) []string {
	args := []string{
		claim.Token.Reveal(), millis(claim.Keep), strconv.FormatInt(int64(claim.Floor), 10),
		at(claim.NotAfter), claim.Note, millis(recordOutlives), guard,
	}
	switch {
	case turn != nil:
		args = append(args, turnArgs(*turn)...)
	case claim.Overtake:
		args = append(args, turnArgs(locker.Turn{})...)
	default:
		return append(args, "")
	}
	if claim.Overtake {
		args = append(args, "1")
	}
	return args
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
	case "recovering":
		left, err := c.number(1)
		if err != nil {
			return locker.Grant{}, err
		}
		return locker.Grant{}, recovering(time.Duration(left) * time.Millisecond)
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
	fence, err := c.fence(1)
	if err != nil {
		return locker.Grant{}, err
	}
	left, err := c.number(2)
	if err != nil {
		return locker.Grant{}, err
	}
	return locker.Grant{
		Fence: fence, Left: time.Duration(left) * time.Millisecond,
		Reading: c.node.reading(c.micros),
	}, nil
}

// fence returns field i of the reply, a fencing token.
func (c *call) fence(i int) (locker.Fence, error) {
	n, err := c.number(i)
	if err == nil && (n <= 0 || locker.Fence(n) > locker.MaxFence) {
		err = unreadable("the fencing token is out of range")
	}
	if err != nil {
		return 0, err
	}
	return locker.Fence(n), nil
}
