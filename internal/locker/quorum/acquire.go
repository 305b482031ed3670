package quorum

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Acquire implements [locker.Backend].
func (b *Backend) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Grant{}, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	return b.newVote(ctx, c, nil, nil).hold()
}

// AcquireInLine implements [locker.Queue]. A claim that is refused has a place
// at each member that has refused it; its number is the greatest that one of
// them gave, and all have that from the next call on.
func (b *Backend) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Grant{}, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	return b.newVote(ctx, c, &t, nil).hold()
}

// HandOver implements [locker.Queue]. It is one step at each member, and it is
// granted if it was at a majority.
func (b *Backend) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Verdict{Err: err}, locker.Grant{}, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	b.healing.giveUp([]locker.Surrender{s})
	v := b.newVote(ctx, c, &t, &s)
	grant, err := v.hold()
	return v.verdicts.await(ctx)[0], grant, err
}
