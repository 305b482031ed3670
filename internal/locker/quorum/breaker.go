package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Sight implements [locker.Breaker]. A lock that no majority has is nobody's,
// and its state is unknown.
func (b *Backend) Sight(ctx context.Context, key locker.Key) (locker.Sighting, error) {
	breakers, err := b.breakers()
	if err != nil {
		return locker.Sighting{}, err
	}
	return b.look(ctx, func(ctx context.Context, n *node) (locker.Sighting, error) {
		return breakers[n.index].Sight(ctx, key)
	})
}

// Break implements [locker.Breaker]. The tombstone is put at all members; it
// stands once it is at a majority, and lies there until fewer have it.
func (b *Backend) Break(ctx context.Context, breach locker.Breach) (time.Duration, error) {
	if err := over(ctx); err != nil {
		return 0, err
	}
	breakers, err := b.breakers()
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var lefts []time.Duration
	t := newTally(b, 1, renewRule)
	err = b.poll(ctx, t, func(ctx context.Context, n *node) []locker.Verdict {
		left, err := breakers[n.index].Break(ctx, breach)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			lefts = append(lefts, left)
		}
		return all(1, err)
	})[0].Err
	if err != nil {
		return 0, err
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(lefts)
	return lefts[len(lefts)-b.need], nil
}

// breakers returns the members as what can break locks; one that cannot keeps
// all from it.
func (b *Backend) breakers() ([]locker.Breaker, error) {
	breakers := make([]locker.Breaker, len(b.nodes))
	for i, n := range b.nodes {
		breaker, ok := n.Member.(locker.Breaker)
		if !ok {
			return nil, locker.ErrUnsupported
		}
		breakers[i] = breaker
	}
	return breakers, nil
}
