package lockertest

import (
	"context"
	"errors"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// memberMutants are the mistakes of one of several backends that decide by
// majority.
var memberMutants = []mutation{
	{"remedy that takes what another has", func(h Harness, m *mutant) {
		m.heal = eachRemedy(m.heal, func(r locker.Remedy, err error) error {
			if errors.Is(err, locker.ErrTaken) {
				h.Put(r.Key, r.Token.Reveal(), r.Keep)
				return nil
			}
			return err
		})
	}},
	{"remedy that is executed late", func(h Harness, m *mutant) {
		heal := m.heal
		m.heal = func(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
			for i := range remedies {
				remedies[i].NotAfter = h.Now().Add(callDeadline)
			}
			return heal(ctx, remedies)
		}
	}},
	{"remedy that extends a lock which is still there", func(h Harness, m *mutant) {
		m.heal = eachRemedy(m.heal, func(r locker.Remedy, err error) error {
			if err == nil {
				h.Put(r.Key, r.Token.Reveal(), r.Keep)
			}
			return err
		})
	}},
	{"remedy without the fence", func(_ Harness, m *mutant) {
		heal := m.heal
		m.heal = func(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
			for i := range remedies {
				remedies[i].Fence = 1
			}
			return heal(ctx, remedies)
		}
	}},
	{"raise that says it has, and has not", func(_ Harness, m *mutant) {
		raise := m.raise
		m.raise = func(ctx context.Context, r locker.Raising) (locker.Fence, error) {
			to := r.Fence
			r.Fence = 1
			now, err := raise(ctx, r)
			return max(now, to), err
		}
	}},
	{"raise of another's fence", func(_ Harness, m *mutant) {
		raise := m.raise
		m.raise = func(ctx context.Context, r locker.Raising) (locker.Fence, error) {
			now, err := raise(ctx, r)
			if errors.Is(err, locker.ErrTaken) {
				return r.Fence, nil
			}
			return now, err
		}
	}},
	{"raise that is executed late", func(h Harness, m *mutant) {
		raise := m.raise
		m.raise = func(ctx context.Context, r locker.Raising) (locker.Fence, error) {
			r.NotAfter = h.Now().Add(callDeadline)
			return raise(ctx, r)
		}
	}},
	{"line that is never overtaken", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			c.Overtake = false
			return acquire(ctx, c)
		}
	}},
	{"quiet release that wakes", func(_ Harness, m *mutant) {
		release := m.release
		m.release = func(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
			for i := range surrenders {
				surrenders[i].Quiet = false
			}
			return release(ctx, surrenders)
		}
	}},
	{"mark of the holder alone", func(_ Harness, m *mutant) {
		inspect := m.inspect
		m.inspect = func(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
			o, err := inspect(ctx, key)
			if o.Holder != nil {
				o.Mark = locker.MarkOf(o.Holder.Pod)
			}
			return o, err
		}
	}},
}

func eachRemedy(heal func(context.Context, []locker.Remedy) []locker.Verdict, alter func(locker.Remedy, error) error) func(context.Context, []locker.Remedy) []locker.Verdict {
	return func(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
		verdicts := heal(ctx, remedies)
		for i := range verdicts {
			verdicts[i].Err = alter(remedies[i], verdicts[i].Err)
		}
		return verdicts
	}
}
