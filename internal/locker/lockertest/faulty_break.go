package lockertest

import (
	"context"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var _ locker.Breaker = (*Faulty)(nil)

// Sight implements [locker.Breaker] with the wrapped backend's answer, or
// [locker.ErrUnsupported].
func (f *Faulty) Sight(ctx context.Context, key locker.Key) (locker.Sighting, error) {
	breaker, ok := f.backend.(locker.Breaker)
	if !ok {
		return locker.Sighting{}, locker.ErrUnsupported
	}
	return answer(f, ctx, OpSight, []locker.Key{key}, func(ctx context.Context) (locker.Sighting, error) {
		return breaker.Sight(ctx, key)
	})
}

// Break implements [locker.Breaker] likewise.
func (f *Faulty) Break(ctx context.Context, b locker.Breach) (time.Duration, error) {
	breaker, ok := f.backend.(locker.Breaker)
	if !ok {
		return 0, locker.ErrUnsupported
	}
	return answer(f, ctx, OpBreak, []locker.Key{b.Key}, func(ctx context.Context) (time.Duration, error) {
		return breaker.Break(ctx, b)
	})
}
