package redis

import (
	"context"
	"errors"
	"strconv"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Heal implements [locker.Healer]. Remedies are few, and each is a call of its
// own: its lock and record are of one slot.
func (b *Backend) Heal(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	verdicts := make([]locker.Verdict, len(remedies))
	b.heal(ctx, remedies, indexes(len(remedies)), verdicts)
	var again []int
	for i, r := range remedies {
		if errors.Is(verdicts[i].Err, locker.ErrLate) && b.now() < r.NotAfter {
			again = append(again, i)
		}
	}
	b.heal(ctx, remedies, again, verdicts)
	return verdicts
}

// heal sends the remedies at the indexes which and sets their verdicts.
func (b *Backend) heal(ctx context.Context, remedies []locker.Remedy, which []int, verdicts []locker.Verdict) {
	calls := make([]*call, len(which))
	for i, at := range which {
		r := remedies[at]
		calls[i] = &call{
			script: healScript,
			keys:   []string{b.keys.lock(r.Key), b.keys.record(r.Key)},
			which:  which[i : i+1],
			args: func(at func(locker.Instant) string) []string {
				return []string{
					r.Token.Reveal(), millis(r.Keep), fenceText(r.Fence), at(r.NotAfter), r.Note, millis(recordOutlives),
				}
			},
		}
	}
	b.sendAll(ctx, toRenew, calls, func(c *call, err error) { c.setVerdicts(err, verdicts) })
}

// Raise implements [locker.Raiser].
func (b *Backend) Raise(ctx context.Context, r locker.Raising) (locker.Fence, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	fence, err := b.raise(ctx, r)
	if errors.Is(err, locker.ErrLate) && b.now() < r.NotAfter {
		fence, err = b.raise(ctx, r)
	}
	return fence, err
}

func (b *Backend) raise(ctx context.Context, r locker.Raising) (locker.Fence, error) {
	c := &call{
		script: raiseScript,
		keys:   []string{b.keys.lock(r.Key), b.keys.record(r.Key)},
		args: func(at func(locker.Instant) string) []string {
			return []string{r.Token.Reveal(), fenceText(r.Fence), at(r.NotAfter)}
		},
	}
	if err := b.send(ctx, toLook, c); err != nil {
		return 0, err
	}
	if err := c.verdict(0); err != nil {
		return 0, err
	}
	return c.fence(1)
}

func fenceText(f locker.Fence) string { return strconv.FormatInt(int64(f), 10) }
