package memory

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Heal implements [locker.Healer].
func (b *Backend) Heal(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
	return b.each(ctx, len(remedies), func(i int, now locker.Instant) error {
		return b.healLocked(remedies[i], now)
	})
}

func (b *Backend) healLocked(h locker.Remedy, now locker.Instant) error {
	if now > h.NotAfter {
		return locker.ErrLate
	}
	r, token := b.rows.get(h.Key, now), h.Token.Reveal()
	if r.taken() {
		if r.heldBy(h.Token) {
			return nil
		}
		return locker.ErrTaken
	}
	r.hold(token, now, h.Keep)
	since := b.wall()
	if r.grant.token == token {
		since = r.grant.since
	}
	r.grant = grant{
		token: token, fence: max(r.grant.fence, h.Fence), since: since, note: h.Note,
		forgetAt: r.until.Add(remember),
	}
	b.rows.add(h.Key, r, now)
	return nil
}

// Raise implements [locker.Raiser].
func (b *Backend) Raise(ctx context.Context, raise locker.Raising) (locker.Fence, error) {
	if err := over(ctx); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now > raise.NotAfter {
		return 0, locker.ErrLate
	}
	r, err := b.rows.held(raise.Key, raise.Token, now)
	if err != nil {
		return 0, err
	}
	if r.grant.token != raise.Token.Reveal() {
		return 0, &locker.StoreError{Reason: locker.StoreFailed, Certain: true, Err: errNoRecord.Err}
	}
	r.grant.fence = max(r.grant.fence, raise.Fence)
	b.rows.set(raise.Key, r)
	return r.grant.fence, nil
}
