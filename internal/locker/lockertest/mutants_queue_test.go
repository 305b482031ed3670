package lockertest

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// queueMutants are mistakes in keeping a line.
var queueMutants = []mutation{
	{"claim that overtakes who waits", func(h Harness, m *mutant) {
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if held := heldOf(err); held != nil && held.Queued {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
				return locker.Grant{Fence: locker.Fence(time.Now().UnixMicro()), Left: c.Keep}, nil
			}
			return grant, err
		}
	}},
	{"waiter that overtakes the others", func(h Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			grant, err := inLine(ctx, c, t)
			if held := heldOf(err); held != nil && held.Queued {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
				return locker.Grant{Fence: locker.Fence(time.Now().UnixMicro()), Left: c.Keep}, nil
			}
			return grant, err
		}
	}},
	{"waiter's claim that is told all of its TTL when it is sent again", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			grant, err := inLine(ctx, c, t)
			if err == nil {
				grant.Left = c.Keep
			}
			return grant, err
		}
	}},
	{"hand-over that is told all of its TTL when it is sent again", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			verdict, grant, err := handOver(ctx, s, c, t)
			if err == nil {
				grant.Left = c.Keep
			}
			return verdict, grant, err
		}
	}},
	{"first call of a waiter that is first", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			if t.Number == 0 {
				t.Number = 1
			}
			return inLine(ctx, c, t)
		}
	}},
	{"number that changes with every call", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			t.Number = 0
			return inLine(ctx, c, t)
		}
	}},
	{"place that is dropped and comes back last", func(_ Harness, m *mutant) {
		var last atomic.Int64
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			asked := t.Number
			if asked != 0 {
				t.Number = 100 + last.Add(1)
			}
			grant, err := inLine(ctx, c, t)
			if held := heldOf(err); held != nil && held.Standing != nil && asked != 0 {
				held.Standing.Number = asked
			}
			return grant, err
		}
	}},
	{"number by the time", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			if t.Number == 0 {
				t.Number = time.Now().UnixMilli()
			}
			return inLine(ctx, c, t)
		}
	}},
	{"grant that forgets the next caller", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			t.Rest = 0
			return inLine(ctx, c, t)
		}
	}},
	{"hand-over that forgets the next caller", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			t.Rest = 0
			return handOver(ctx, s, c, t)
		}
	}},
	{"leave that forgets the next caller", func(_ Harness, m *mutant) {
		leave := m.leave
		m.leave = func(ctx context.Context, key locker.Key, t locker.Turn) error {
			t.Rest = 0
			return leave(ctx, key, t)
		}
	}},
	{"grant that keeps the place", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			if t.Rest == 0 {
				t.Rest = t.Number
			}
			return inLine(ctx, c, t)
		}
	}},
	{"leave that does nothing", func(_ Harness, m *mutant) {
		m.leave = func(ctx context.Context, _ locker.Key, _ locker.Turn) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return nil
		}
	}},
	{"late leave that removes a newer place", func(_ Harness, m *mutant) {
		leave := m.leave
		m.leave = func(ctx context.Context, key locker.Key, t locker.Turn) error {
			t.Call = math.MaxInt64
			return leave(ctx, key, t)
		}
	}},
	{"leave of any caller that removes the place", func(_ Harness, m *mutant) {
		leave := m.leave
		m.leave = func(ctx context.Context, key locker.Key, t locker.Turn) error {
			if t.Rest == 0 {
				t.Number = 0
			}
			return leave(ctx, key, t)
		}
	}},
	{"leave without a number that does nothing", func(_ Harness, m *mutant) {
		leave := m.leave
		m.leave = func(ctx context.Context, key locker.Key, t locker.Turn) error {
			if t.Number == 0 {
				return nil
			}
			return leave(ctx, key, t)
		}
	}},
	{"leave that wakes nobody", func(_ Harness, m *mutant) {
		var mu sync.Mutex
		mute := false
		leave, listen := m.leave, m.listen
		m.leave = func(ctx context.Context, key locker.Key, t locker.Turn) error {
			mu.Lock()
			mute = true
			mu.Unlock()
			return leave(ctx, key, t)
		}
		m.listen = func(ctx context.Context, process string, hear func(locker.Hint)) {
			listen(ctx, process, func(h locker.Hint) {
				mu.Lock()
				defer mu.Unlock()
				if !mute || h.Kind != locker.HintWake {
					hear(h)
				}
				mute = false
			})
		}
	}},
	{"wait that never ends", func(_ Harness, m *mutant) {
		m.inLine = eachTurn(m.inLine, func(t *locker.Turn) { t.WaitLeft = time.Hour })
	}},
	{"calls that all count as the latest", func(_ Harness, m *mutant) {
		m.inLine = eachTurn(m.inLine, func(t *locker.Turn) { t.Call = math.MaxInt64 })
	}},
	{"calls that all count as old", func(_ Harness, m *mutant) {
		m.inLine = eachTurn(m.inLine, func(t *locker.Turn) { t.Call = math.MaxInt64 - t.Call })
	}},
	{"dead places that are never dropped", func(_ Harness, m *mutant) {
		stays := &inLineForEver{in: make(map[locker.Key]map[string]bool)}
		acquire := m.acquire
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			if err := stays.check(c.Key); err != nil {
				return locker.Grant{}, err
			}
			return acquire(ctx, c)
		}
		m.inLine, m.leave = stays.watch(m.inLine, m.leave)
	}},
	{"line nobody is told of", func(_ Harness, m *mutant) {
		acquire, inspect := m.acquire, m.inspect
		m.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			grant, err := acquire(ctx, c)
			if held := heldOf(err); held != nil {
				held.QueueLength = 0
			}
			return grant, err
		}
		m.inspect = func(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
			o, err := inspect(ctx, key)
			o.QueueLength = 0
			return o, err
		}
	}},
	{"refusal without a standing", func(_ Harness, m *mutant) {
		m.inLine = eachRefusal(m.inLine, func(held *locker.HeldError) { held.Standing = nil })
	}},
	{"free key that is called held", func(_ Harness, m *mutant) {
		m.inLine = eachRefusal(m.inLine, func(held *locker.HeldError) { held.Queued = false })
	}},
	{"milliseconds taken for seconds", func(_ Harness, m *mutant) {
		m.inLine = eachRefusal(m.inLine, func(held *locker.HeldError) { held.Standing.AskIn *= 1000 })
	}},
	{"everybody asks every 100 milliseconds", func(_ Harness, m *mutant) {
		m.inLine = eachRefusal(m.inLine, func(held *locker.HeldError) { held.Standing.AskIn = 100 * time.Millisecond })
	}},
	{"everybody asks as often as the first", func(_ Harness, m *mutant) {
		m.inLine = eachRefusal(m.inLine, func(held *locker.HeldError) { held.Standing.AskIn = min(held.Standing.AskIn, locker.AskEvery) })
	}},
	{"hint that is never heard", func(_ Harness, m *mutant) { m.listen = only(m.listen, locker.HintListening) }},
	{"nobody told to ask more often", func(_ Harness, m *mutant) {
		m.listen = only(m.listen, locker.HintListening, locker.HintWake)
	}},
	{"waking that everybody hears", func(_ Harness, m *mutant) {
		var mu sync.Mutex
		all := make(map[string]func(locker.Hint))
		listen := m.listen
		m.listen = func(ctx context.Context, process string, hear func(locker.Hint)) {
			mu.Lock()
			all[process] = hear
			mu.Unlock()
			listen(ctx, process, func(h locker.Hint) {
				if h.Kind != locker.HintWake {
					hear(h)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, hear := range all {
					hear(h)
				}
			})
		}
	}},
	{"waking that two hear", func(_ Harness, m *mutant) {
		var mu sync.Mutex
		listen, hears := m.listen, func(locker.Hint) {}
		m.listen = func(ctx context.Context, process string, hear func(locker.Hint)) {
			mu.Lock()
			other := hears
			hears = hear
			mu.Unlock()
			listen(ctx, process, func(h locker.Hint) {
				hear(h)
				if h.Kind == locker.HintWake {
					other(h)
				}
			})
		}
	}},
	{"waking that is heard twice", func(_ Harness, m *mutant) {
		listen := m.listen
		m.listen = func(ctx context.Context, process string, hear func(locker.Hint)) {
			listen(ctx, process, func(h locker.Hint) {
				hear(h)
				hear(h)
			})
		}
	}},
	{"listener that does not say so", func(_ Harness, m *mutant) {
		m.listen = only(m.listen, locker.HintWake, locker.HintNear)
	}},
	{"waking without a key", func(_ Harness, m *mutant) {
		listen := m.listen
		m.listen = func(ctx context.Context, process string, hear func(locker.Hint)) {
			listen(ctx, process, func(h locker.Hint) { hear(locker.Hint{Kind: h.Kind}) })
		}
	}},
	{"hand-over that forgets the minimum hold", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			s.Keep = 0
			return handOver(ctx, s, c, t)
		}
	}},
	{"hand-over without compare", func(h Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			if value, ok := h.CurrentValue(c.Key); ok && value != c.Token.Reveal() {
				s.Token = locker.TokenFromStore(value)
			}
			return handOver(ctx, s, c, t)
		}
	}},
	{"hand-over that takes a free key", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			v, grant, err := handOver(ctx, s, c, t)
			if held := heldOf(err); errors.Is(v.Err, locker.ErrGone) && held != nil {
				t.Number = held.Standing.Number
				grant, err = m.inLine(ctx, c, t)
			}
			return v, grant, err
		}
	}},
	{"hand-over past those who are ahead", func(h Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			v, grant, err := handOver(ctx, s, c, t)
			if held := heldOf(err); v.Err == nil && held != nil && held.Queued {
				h.Put(c.Key, c.Token.Reveal(), c.Keep)
				return v, locker.Grant{Fence: locker.Fence(time.Now().UnixMicro()), Left: c.Keep}, nil
			}
			return v, grant, err
		}
	}},
	{"hand-over that always gives back", func(_ Harness, m *mutant) {
		handOver, release := m.handOver, m.release
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			if v := release(ctx, []locker.Surrender{s}); v[0].Err == nil {
				return v[0], locker.Grant{}, &locker.HeldError{Queued: true, Standing: &locker.Standing{Number: t.Number}}
			}
			return handOver(ctx, s, c, t)
		}
	}},
	{"hand-over that keeps the lock if the claim is refused", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			if BubbleClock() > c.NotAfter {
				return locker.Verdict{}, locker.Grant{}, locker.ErrLate
			}
			return handOver(ctx, s, c, t)
		}
	}},
	{"hand-over that is lost when it is sent again", func(h Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			if value, _ := h.CurrentValue(c.Key); value == c.Token.Reveal() {
				return locker.Verdict{Err: locker.ErrTaken}, locker.Grant{}, &locker.HeldError{}
			}
			return handOver(ctx, s, c, t)
		}
	}},
	{"hand-over without a floor", func(_ Harness, m *mutant) {
		handOver := m.handOver
		m.handOver = func(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
			c.Floor = 0
			return handOver(ctx, s, c, t)
		}
	}},
	{"late claim in line", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			c.NotAfter = math.MaxInt64
			return inLine(ctx, c, t)
		}
	}},
	{"spent claim in line", func(_ Harness, m *mutant) {
		inLine := m.inLine
		m.inLine = func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
			grant, err := inLine(ctx, c, t)
			if errors.Is(err, locker.ErrSpent) {
				c.Token = locker.NewToken(c.Holder)
				grant, err = inLine(ctx, c, t)
			}
			return grant, err
		}
	}},
}

func heldOf(err error) *locker.HeldError {
	var held *locker.HeldError
	if !errors.As(err, &held) {
		return nil
	}
	return held
}

type inLineFunc = func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error)

func eachTurn(inLine inLineFunc, alter func(*locker.Turn)) inLineFunc {
	return func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
		alter(&t)
		return inLine(ctx, c, t)
	}
}

func eachRefusal(inLine inLineFunc, alter func(*locker.HeldError)) inLineFunc {
	return func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
		grant, err := inLine(ctx, c, t)
		if held := heldOf(err); held != nil {
			alter(held)
		}
		return grant, err
	}
}

// only lets no other kinds of hints be heard.
func only(listen func(context.Context, string, func(locker.Hint)), kinds ...locker.HintKind) func(context.Context, string, func(locker.Hint)) {
	return func(ctx context.Context, process string, hear func(locker.Hint)) {
		listen(ctx, process, func(h locker.Hint) {
			for _, kind := range kinds {
				if h.Kind == kind {
					hear(h)
				}
			}
		})
	}
}

// inLineForEver refuses claims that do not wait while anybody is in line,
// alive or dead.
type inLineForEver struct {
	mu sync.Mutex
	in map[locker.Key]map[string]bool
}

func (f *inLineForEver) check(key locker.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.in[key]) == 0 {
		return nil
	}
	return &locker.HeldError{Occupancy: locker.Occupancy{State: locker.OccupancyFree, QueueLength: len(f.in[key])}, Queued: true}
}

func (f *inLineForEver) watch(inLine inLineFunc, leave func(context.Context, locker.Key, locker.Turn) error) (inLineFunc, func(context.Context, locker.Key, locker.Turn) error) {
	watched := func(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
		grant, err := inLine(ctx, c, t)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.in[c.Key] == nil {
			f.in[c.Key] = make(map[string]bool)
		}
		switch {
		case heldOf(err) != nil:
			f.in[c.Key][t.Process] = true
		case err == nil && t.Rest == 0:
			delete(f.in[c.Key], t.Process)
		}
		return grant, err
	}
	return watched, func(ctx context.Context, key locker.Key, t locker.Turn) error {
		f.mu.Lock()
		delete(f.in[key], t.Process)
		f.mu.Unlock()
		return leave(ctx, key, t)
	}
}
