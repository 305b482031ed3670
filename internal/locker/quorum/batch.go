package quorum

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Renew implements [locker.Backend]. Where a majority confirms a lock that is
// to be extended, it is put back at members that do not have it.
func (b *Backend) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	if err := over(ctx); err != nil || len(renewals) == 0 {
		return all(len(renewals), err)
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	t := newTally(b, len(renewals), renewRule)
	remedies := make([][]locker.Remedy, len(b.nodes)) // under the tally's mutex
	t.agreed = func(lock int, c *count, err error) {
		r := renewals[lock]
		if err != nil || r.Keep <= 0 {
			return // to verify tells nothing of how long to keep it
		}
		for _, i := range c.lacking {
			remedies[i] = append(remedies[i], locker.Remedy{
				Key: r.Key, Token: r.Token, Fence: r.Fence, Note: r.Note, Keep: r.Keep, NotAfter: r.NotAfter,
			})
		}
		c.lacking = nil
	}
	b.healing.begin(renewals)
	ended := false // under the tally's mutex
	t.after = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for i, some := range remedies {
			if len(some) == 0 {
				continue
			}
			remedies[i] = nil
			n := b.nodes[i]
			sent := b.healing.prescribe(n, some)
			if len(sent) == 0 {
				continue
			}
			working := b.crew.start(func() {
				ctx, cancel := detached(ctx, 0)
				defer cancel()
				n.heal(ctx, sent)
			})
			if !working {
				for _, r := range sent {
					n.arrived(r.Token)
				}
			}
		}
		if t.heard == len(b.nodes) && !ended {
			ended = true
			b.healing.end(renewals)
		}
	}
	return b.poll(ctx, t, func(ctx context.Context, n *node) []locker.Verdict { return n.renew(ctx, renewals) })
}

// Release implements [locker.Backend]. The locks are given back at all members,
// and what one of them does not answer to is taken back when it does.
func (b *Backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	if err := over(ctx); err != nil || len(surrenders) == 0 {
		return all(len(surrenders), err)
	}
	b.healing.giveUp(surrenders)
	for _, s := range surrenders {
		b.doubts.drop(s.Token)
	}
	t := newTally(b, len(surrenders), releaseRule)
	return b.poll(ctx, t, func(ctx context.Context, n *node) []locker.Verdict { return n.release(ctx, surrenders) })
}

// Annotate implements [locker.Annotator].
func (b *Backend) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	if err := over(ctx); err != nil {
		return err
	}
	t := newTally(b, 1, renewRule)
	return b.poll(ctx, t, func(ctx context.Context, n *node) []locker.Verdict {
		return []locker.Verdict{{Err: n.Annotate(ctx, key, token, note)}}
	})[0].Err
}
