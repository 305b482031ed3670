package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// breakMutants are the mistakes of taking a lock away from its holder.
var breakMutants = []mutation{
	{"breaking frees the key", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if err == nil {
				h.Delete(b.Key)
			}
			return left, err
		})
	}},
	{"breaking cuts the time that is left", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if value, ok := h.CurrentValue(b.Key); ok && err == nil {
				h.Put(b.Key, value, left/2)
			}
			return left, err
		})
	}},
	{"breaking lengthens the time that is left", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if value, ok := h.CurrentValue(b.Key); ok && err == nil {
				h.Put(b.Key, value, left+time.Second)
			}
			return left, err
		})
	}},
	{"breaking leaves the token there", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if err == nil {
				h.Put(b.Key, b.Token.Reveal(), left)
			}
			return left, err
		})
	}},
	{"breaking without compare", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if errors.Is(err, locker.ErrTaken) {
				left = h.PTTL(b.Key)
				h.Put(b.Key, locker.Tombstone(b.Holder, locker.TombstoneBroken), left)
				return left, nil
			}
			return left, err
		})
	}},
	{"breaking takes a free key", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if errors.Is(err, locker.ErrGone) {
				h.Put(b.Key, locker.Tombstone(b.Holder, locker.TombstoneBroken), long)
				return long, nil
			}
			return left, err
		})
	}},
	{"breaking gives a value without TTL one", func(h Harness, m *mutant) {
		m.tear = eachBreach(m.tear, func(b locker.Breach, left time.Duration, err error) (time.Duration, error) {
			if errors.Is(err, locker.ErrKeyConflict) {
				h.Put(b.Key, locker.Tombstone(b.Holder, locker.TombstoneBroken), long)
				return long, nil
			}
			return left, err
		})
	}},
	{"breaking again is refused", func(h Harness, m *mutant) {
		tear := m.tear
		m.tear = func(ctx context.Context, b locker.Breach) (time.Duration, error) {
			if value, _ := h.CurrentValue(b.Key); value != "" && value != b.Token.Reveal() {
				return 0, locker.ErrTaken
			}
			return tear(ctx, b)
		}
	}},
	{"sighting with another token", func(_ Harness, m *mutant) {
		sight := m.sight
		m.sight = func(ctx context.Context, key locker.Key) (locker.Sighting, error) {
			s, err := sight(ctx, key)
			s.Token = locker.NewToken(pod)
			return s, err
		}
	}},
	{"what is broken is told as held", func(_ Harness, m *mutant) {
		inspect := m.inspect
		m.inspect = func(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
			o, err := inspect(ctx, key)
			if o.State == locker.OccupancyBroken {
				o.State = locker.OccupancyHeld
			}
			return o, err
		}
	}},
}

func eachBreach(tear func(context.Context, locker.Breach) (time.Duration, error), alter func(locker.Breach, time.Duration, error) (time.Duration, error)) func(context.Context, locker.Breach) (time.Duration, error) {
	return func(ctx context.Context, b locker.Breach) (time.Duration, error) {
		left, err := tear(ctx, b)
		return alter(b, left, err)
	}
}
