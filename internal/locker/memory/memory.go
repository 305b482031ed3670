// Package memory is the backend that lives in this process: for
// `locksidecar dev` and for tests. It excludes only those who share one
// [Backend], and forgets everything when the process ends.
//
// It answers as the Redis backend does, so that what is tested on it holds
// there too; lockertest's conformance suite keeps the two together. Unlike
// Redis it lets keys expire by a clock that never steps.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Config says which clocks a Backend reads. The zero Config is ready to use.
type Config struct {
	// Now is the clock by which keys expire and NotAfter is judged. It must be
	// the clock of the Lockers that use the Backend. nil means
	// [locker.BootTime].
	Now locker.Clock

	// Wall is the store's wall clock: the source of fencing tokens, and of the
	// times that people are shown. nil means [time.Now].
	Wall func() time.Time
}

// Backend is a [locker.Member], and so also a [locker.Inspector],
// [locker.Annotator] and [locker.Queue]. Any number of Lockers may share one.
type Backend struct {
	now  locker.Clock
	wall func() time.Time

	mu        sync.Mutex
	rows      table
	lines     lines
	listeners map[string][]*listener // by process
}

var _ locker.Member = (*Backend)(nil)

// New returns a Backend in which every key is free.
func New(config Config) *Backend {
	b := &Backend{now: config.Now, wall: config.Wall}
	if b.now == nil {
		b.now = locker.BootTime
	}
	if b.wall == nil {
		b.wall = time.Now
	}
	return b
}

// Acquire implements [locker.Backend].
func (b *Backend) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Grant{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attemptLocked(c)
	g, err := b.tryLocked(a)
	g.Reading = a.reading()
	return g, err
}

// Renew implements [locker.Backend].
func (b *Backend) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	return b.each(ctx, len(renewals), func(i int, now locker.Instant) error {
		renewal := renewals[i]
		if now > renewal.NotAfter {
			return locker.ErrLate
		}
		r, err := b.rows.held(renewal.Key, renewal.Token, now)
		if err != nil || renewal.Keep <= 0 {
			return err
		}
		r.hold(r.value, now, renewal.Keep)
		r.grant.forgetAt = r.until.Add(remember)
		b.rows.set(renewal.Key, r)
		return nil
	})
}

// Release implements [locker.Backend].
func (b *Backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	return b.each(ctx, len(surrenders), func(i int, now locker.Instant) error {
		err := b.releaseLocked(surrenders[i], now)
		if err == nil && surrenders[i].Keep <= 0 && !surrenders[i].Quiet {
			b.freedLocked(surrenders[i].Key, now)
		}
		return err
	})
}

// releaseLocked gives a lock back, or leaves its tombstone, and wakes nobody.
func (b *Backend) releaseLocked(s locker.Surrender, now locker.Instant) error {
	r, err := b.rows.held(s.Key, s.Token, now)
	if err != nil {
		return err
	}
	r.free()
	r.grant.forgetAt = now.Add(remember)
	if s.Keep > 0 {
		r.hold(locker.Tombstone(s.Holder, locker.TombstoneMinHold), now, s.Keep)
		r.grant.forgetAt = r.until.Add(remember)
	}
	b.rows.set(s.Key, r)
	return nil
}

// each answers a batch of n, one reading of the clocks for all.
func (b *Backend) each(ctx context.Context, n int, answer func(i int, now locker.Instant) error) []locker.Verdict {
	verdicts := make([]locker.Verdict, n)
	if err := over(ctx); err != nil {
		for i := range verdicts {
			verdicts[i].Err = err
		}
		return verdicts
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, reading := b.now(), locker.Reading{UnixMicro: b.wall().UnixMicro()}
	for i := range verdicts {
		verdicts[i] = locker.Verdict{Err: answer(i, now), Reading: reading}
	}
	return verdicts
}

// over is the certain answer to a caller that has already given up.
func over(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &locker.StoreError{Reason: locker.StoreTimeout, Certain: true, Err: context.Cause(ctx)}
}
