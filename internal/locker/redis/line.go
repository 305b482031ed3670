package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// AcquireInLine implements [locker.Queue].
func (b *Backend) AcquireInLine(ctx context.Context, claim locker.Claim, turn locker.Turn) (locker.Grant, error) {
	return b.acquire(ctx, claim, &turn)
}

// Leave implements [locker.Queue].
func (b *Backend) Leave(ctx context.Context, key locker.Key, turn locker.Turn) error {
	c := &call{
		script: leaveScript,
		keys:   []string{b.keys.lock(key)},
		args: func(func(locker.Instant) string) []string {
			return append([]string{b.keys.prefix}, turnArgs(turn)[:4]...)
		},
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.send(ctx, toRelease, c); err != nil {
		return err
	}
	return c.verdict(0)
}

// HandOver implements [locker.Queue]. Sent again after it has been carried out,
// it says so again.
func (b *Backend) HandOver(ctx context.Context, s locker.Surrender, claim locker.Claim, turn locker.Turn) (locker.Verdict, locker.Grant, error) {
	var c *call
	c = &call{
		replicated: true,
		script:     handOverScript,
		keys:       []string{b.keys.lock(claim.Key)},
		companions: func() []string { return b.keys.companions(claim.Key) },
		args: func(at func(locker.Instant) string) []string {
			args := append([]string{b.keys.prefix, millis(recordOutlives)}, surrenderArgs(s)...)
			return append(args, claimArgs(claim, &turn, at, b.guardOf(c.run))...)
		},
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.send(ctx, toHandOver, c); err != nil {
		return locker.Verdict{Err: err}, locker.Grant{}, err
	}
	verdict := locker.Verdict{Err: c.verdict(0), Reading: c.node.reading(c.micros)}
	grant, err := c.handed()
	if err == nil {
		grant, err = b.acknowledged(ctx, claim, c, grant)
	}
	return verdict, grant, err
}

// handed reads the second half of the answer to a hand-over.
func (c *call) handed() (locker.Grant, error) {
	c.reply = c.reply[min(1, len(c.reply)):]
	outcome, err := c.text(0)
	if err != nil {
		return locker.Grant{}, err
	}
	if reply, ok := strings.CutPrefix(outcome, "-"); ok {
		return locker.Grant{}, replyFailure(reply)
	}
	return c.outcome(true)
}

// turnArgs are a script's arguments for a caller who waits.
func turnArgs(t locker.Turn) []string {
	return []string{
		t.Process, strconv.FormatInt(t.Number, 10), strconv.FormatInt(t.Rest, 10),
		strconv.FormatInt(t.Call, 10), millisOrNone(t.WaitLeft),
	}
}

// refusal returns that a claim was not granted. If it waits, its standing is in
// the reply from the given field on.
func (c *call) refusal(o locker.Occupancy, waits bool, field int) error {
	held := &locker.HeldError{Occupancy: o, Queued: o.State == locker.OccupancyFree}
	if !waits {
		return held
	}
	var numbers [3]int64
	for i := range numbers {
		n, err := c.number(field + i)
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	held.Standing = &locker.Standing{
		Number: numbers[0],
		Ahead:  int(numbers[1]),
		AskIn:  time.Duration(numbers[2]) * time.Millisecond,
	}
	return held
}
