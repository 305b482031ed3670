package memory

import (
	"context"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var _ locker.Breaker = (*Backend)(nil)

// Sight implements [locker.Breaker].
func (b *Backend) Sight(ctx context.Context, key locker.Key) (locker.Sighting, error) {
	if err := over(ctx); err != nil {
		return locker.Sighting{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	o, err := b.inspectLocked(key, now)
	if err != nil {
		return locker.Sighting{}, err
	}
	return locker.Sighting{Occupancy: o, Token: locker.TokenFromStore(b.rows.get(key, now).value)}, nil
}

// Break implements [locker.Breaker].
func (b *Backend) Break(ctx context.Context, breach locker.Breach) (time.Duration, error) {
	if err := over(ctx); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	r := b.rows.get(breach.Key, now)
	tombstone := locker.Tombstone(breach.Holder, locker.TombstoneBroken)
	switch {
	case !r.taken():
		return 0, locker.ErrGone
	case r.foreverTaken():
		return 0, locker.ErrKeyConflict
	case r.value != tombstone && !r.heldBy(breach.Token):
		return 0, locker.ErrTaken
	}
	r.value = tombstone
	b.rows.set(breach.Key, r)
	return r.until.Sub(now), nil
}
