package redis

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Inspect implements [locker.Inspector]. What is not a lock, or has no time to
// live, is unknown.
func (b *Backend) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	o, _, err := b.inspect(ctx, key)
	return o, err
}

// inspect also returns what is at the key, unless it is free or what is there
// is no lock, or too long for one.
func (b *Backend) inspect(ctx context.Context, key locker.Key) (locker.Occupancy, string, error) {
	c := &call{
		script: inspectScript,
		keys:   []string{b.keys.lock(key)},
		args:   func(func(locker.Instant) string) []string { return []string{b.keys.prefix} },
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.send(ctx, toLook, c); err != nil {
		return locker.Occupancy{}, "", err
	}
	state, err := c.text(0)
	if err != nil {
		return locker.Occupancy{}, "", err
	}
	switch state {
	case "free", "unknown":
		length, err := c.number(1)
		if err != nil {
			return locker.Occupancy{}, "", err
		}
		o := locker.Occupancy{State: locker.OccupancyFree, QueueLength: int(length)}
		if state == "unknown" {
			o.State = locker.OccupancyUnknown
		}
		return o, "", nil
	case "held":
		o, err := c.occupancy()
		if err != nil {
			return locker.Occupancy{}, "", err
		}
		value, err := c.text(2)
		return o, value, err
	}
	return locker.Occupancy{}, "", unreadable("the answer to an inspection is none of those known")
}

// Annotate implements [locker.Annotator].
func (b *Backend) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	c := &call{
		script: annotateScript,
		keys:   []string{b.keys.lock(key)},
		args:   func(func(locker.Instant) string) []string { return []string{b.keys.prefix, token.Reveal(), note} },
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.send(ctx, toRenew, c); err != nil {
		return err
	}
	return c.verdict(0)
}
