package lockertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

type mutation struct {
	name   string
	mutate func(h Harness, m *mutant)
}

// mutants are the mistakes that lock libraries have made, each as a wrapper
// around a correct backend.
var mutants = []mutation{
	{"delete without compare", func(h Harness, m *mutant) {
		m.release = eachSurrender(m.release, func(s locker.Surrender, err error) error {
			if errors.Is(err, locker.ErrTaken) {
				h.Delete(s.Key)
				return nil
			}
			return err
		})
	}},
	{"delete by prefix of the token", func(h Harness, m *mutant) {
		m.release = eachSurrender(m.release, func(s locker.Surrender, err error) error {
			value, _ := h.CurrentValue(s.Key)
			if errors.Is(err, locker.ErrTaken) && strings.HasPrefix(value, s.Token.Reveal()) {
				h.Delete(s.Key)
				return nil
			}
			return err
		})
	}},
	{"extend without compare", func(h Harness, m *mutant) {
		m.renew = eachRenewal(m.renew, func(r locker.Renewal, err error) error {
			if value, _ := h.CurrentValue(r.Key); errors.Is(err, locker.ErrTaken) && r.Keep > 0 {
				h.Put(r.Key, value, r.Keep)
				return nil
			}
			return err
		})
	}},
	{"renewal that creates the key", func(h Harness, m *mutant) {
		m.renew = eachRenewal(m.renew, func(r locker.Renewal, err error) error {
			if errors.Is(err, locker.ErrGone) && r.Keep > 0 {
				h.Put(r.Key, r.Token.Reveal(), r.Keep)
				return nil
			}
			return err
		})
	}},
	{"late renewal that restores a lock over its minimum hold", func(h Harness, m *mutant) {
		m.renew = eachRenewal(m.renew, func(r locker.Renewal, err error) error {
			value, _ := h.CurrentValue(r.Key)
			if _, tombstone, _ := locker.ReadValue(value); errors.Is(err, locker.ErrTaken) && tombstone != "" {
				h.Put(r.Key, r.Token.Reveal(), max(r.Keep, long))
				return nil
			}
			return err
		})
	}},
	{"verification that extends", func(_ Harness, m *mutant) {
		renew := m.renew
		m.renew = func(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
			renewals = slices.Clone(renewals)
			for i := range renewals {
				renewals[i].Keep = max(renewals[i].Keep, long)
			}
			return renew(ctx, renewals)
		}
	}},
	{"verdicts in another order", func(_ Harness, m *mutant) {
		renew := m.renew
		m.renew = func(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
			verdicts := renew(ctx, renewals)
			slices.Reverse(verdicts)
			return verdicts
		}
	}},
	{"batch that stops at its first no", func(_ Harness, m *mutant) {
		release := m.release
		m.release = func(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
			verdicts := release(ctx, surrenders[:min(1, len(surrenders))])
			for i := 1; i < len(surrenders); i++ {
				if verdicts[i-1].Err != nil {
					verdicts = append(verdicts, verdicts[i-1])
				} else {
					verdicts = append(verdicts, release(ctx, surrenders[i:i+1])...)
				}
			}
			return verdicts
		}
	}},
	{"minimum hold that is forgotten", func(_ Harness, m *mutant) {
		release := m.release
		m.release = func(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
			surrenders = slices.Clone(surrenders)
			for i := range surrenders {
				surrenders[i].Keep = 0
			}
			return release(ctx, surrenders)
		}
	}},
	{"requests that are executed late", func(h Harness, m *mutant) {
		acquire, renew := m.acquire, m.renew
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			c.NotAfter = h.Now().Add(time.Hour)
			return acquire(ctx, c)
		}
		m.renew = func(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
			renewals = slices.Clone(renewals)
			for i := range renewals {
				renewals[i].NotAfter = h.Now().Add(time.Hour)
			}
			return renew(ctx, renewals)
		}
	}},
	{"fence without floor", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			c.Floor = 0
			return acquire(ctx, c)
		}
	}},
	{"fence by the clock alone", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if err == nil {
				grant.Fence = max(locker.Fence(grant.UnixMicro), c.Floor)
			}
			return grant, err
		}
	}},
	{"fence that is the latest and not the grant's own", func(_ Harness, m *mutant) {
		acquire, sent := m.acquire, locker.Fence(0)
		var mu sync.Mutex
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			sent++
			grant.Fence += sent
			return grant, err
		}
	}},
	{"set before count", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if store := (*locker.StoreError)(nil); errors.As(err, &store) && ctx.Err() == nil {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
			}
			return grant, err
		}
	}},
	{"own claim that is refused when it is sent again", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			if value, _ := h.CurrentValue(c.Key); value == c.Token.Reveal() {
				return locker.Grant{}, &locker.HeldError{Occupancy: locker.Occupancy{State: locker.OccupancyHeld}}
			}
			return acquire(ctx, c)
		}
	}},
	{"own claim that is extended when it is sent again", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if err == nil {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
			}
			return grant, err
		}
	}},
	{"own claim that is told all of its TTL when it is sent again", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if err == nil {
				grant.Left = c.Keep
			}
			return grant, err
		}
	}},
	{"spent claim that is granted anew", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if errors.Is(err, locker.ErrSpent) {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
				return locker.Grant{Fence: locker.Fence(grant.UnixMicro), Left: c.Keep, Reading: grant.Reading}, nil
			}
			return grant, err
		}
	}},
	{"check and set that are two steps", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			_, taken := h.CurrentValue(c.Key)
			time.Sleep(time.Microsecond)
			grant, err := acquire(ctx, c)
			if held := (*locker.HeldError)(nil); errors.As(err, &held) && !taken {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
				return locker.Grant{Fence: locker.Fence(grant.UnixMicro), Left: c.Keep}, nil
			}
			return grant, err
		}
	}},
	{"conflict that is overwritten", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if errors.Is(err, locker.ErrKeyConflict) {
				h.Delete(c.Key)
				return acquire(ctx, c)
			}
			return grant, err
		}
	}},
	{"conflict that is given a TTL", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if errors.Is(err, locker.ErrKeyConflict) {
				value, _ := h.CurrentValue(c.Key)
				h.Put(c.Key, value, c.Keep)
			}
			return grant, err
		}
	}},
	{"stranger's value that is shown", func(h Harness, m *mutant) {
		inspect := m.inspect
		m.inspect = func(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
			o, err := inspect(ctx, key)
			if value, ok := h.CurrentValue(key); err == nil && ok && o.Holder == nil {
				o.Holder = &locker.Holder{Pod: value}
			}
			return o, err
		}
	}},
	{"TTL in whole seconds", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			c.Keep = max(c.Keep.Truncate(time.Second), time.Second)
			return acquire(ctx, c)
		}
	}},
	{"keys in one case", func(_ Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			c.Key = locker.Key(strings.ToLower(string(c.Key)))
			return acquire(ctx, c)
		}
	}},
	{"caller who left that is told the lock is gone", func(_ Harness, m *mutant) {
		renew := m.renew
		m.renew = func(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
			verdicts := renew(ctx, renewals)
			for i := range verdicts {
				if ctx.Err() != nil {
					verdicts[i].Err = locker.ErrGone
				}
			}
			return verdicts
		}
	}},
}
