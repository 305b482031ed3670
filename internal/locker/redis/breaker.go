package redis

import (
	"context"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var _ locker.Breaker = (*Backend)(nil)

// Sight implements [locker.Breaker]. A value that is longer than any lock's is
// none.
func (b *Backend) Sight(ctx context.Context, key locker.Key) (locker.Sighting, error) {
	o, value, err := b.inspect(ctx, key)
	switch {
	case err != nil:
		return locker.Sighting{}, err
	case o.State == locker.OccupancyUnknown, o.State != locker.OccupancyFree && value == "":
		return locker.Sighting{}, locker.ErrKeyConflict
	}
	return locker.Sighting{Occupancy: o, Token: locker.TokenFromStore(value)}, nil
}

// Break implements [locker.Breaker].
func (b *Backend) Break(ctx context.Context, breach locker.Breach) (time.Duration, error) {
	c := &call{
		script: breakScript,
		keys:   []string{b.keys.lock(breach.Key)},
		args: func(func(locker.Instant) string) []string {
			return []string{breach.Token.Reveal(), locker.Tombstone(breach.Holder, locker.TombstoneBroken)}
		},
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.send(ctx, toLook, c); err != nil {
		return 0, err
	}
	switch verdict, err := c.text(0); {
	case err != nil:
		return 0, err
	case verdict == "conflict":
		return 0, locker.ErrKeyConflict
	}
	if err := c.verdict(0); err != nil {
		return 0, err
	}
	left, err := c.number(1)
	return time.Duration(left) * time.Millisecond, err
}
