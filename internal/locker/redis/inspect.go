package redis

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Inspect implements [locker.Inspector]. What is not a lock, or has no time to
// live, is unknown.
func (b *Backend) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	c := &call{
		script: inspectScript,
		keys:   []string{b.keys.lock(key), b.keys.record(key)},
		args:   func(func(locker.Instant) string) []string { return []string{b.keys.prefix} },
	}
	if err := b.nodeOf(key).acquire.do(ctx, c); err != nil {
		return locker.Occupancy{}, err
	}
	state, err := c.text(0)
	if err != nil {
		return locker.Occupancy{}, err
	}
	switch state {
	case "free", "unknown":
		length, err := c.number(1)
		if err != nil {
			return locker.Occupancy{}, err
		}
		o := locker.Occupancy{State: locker.OccupancyFree, QueueLength: int(length)}
		if state == "unknown" {
			o.State = locker.OccupancyUnknown
		}
		return o, nil
	case "held":
		return c.occupancy()
	}
	return locker.Occupancy{}, unreadable("the answer to an inspection is none of those known")
}

// Annotate implements [locker.Annotator].
func (b *Backend) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	c := &call{
		script: annotateScript,
		keys:   []string{b.keys.lock(key), b.keys.record(key)},
		args:   func(func(locker.Instant) string) []string { return []string{token.Reveal(), note} },
	}
	if err := b.nodeOf(key).renew.do(ctx, c); err != nil {
		return err
	}
	return c.verdict(0)
}
