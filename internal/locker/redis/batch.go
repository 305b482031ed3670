package redis

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// maxKeys is how many locks go into one script call: a call keeps everybody
// else at the server waiting, for some microseconds a lock.
const maxKeys = 128

// Renew implements [locker.Backend].
func (b *Backend) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	ctx, cancel := b.node.renew.bounded(ctx)
	defer cancel()
	verdicts := make([]locker.Verdict, len(renewals))
	b.renew(ctx, renewals, indexes(len(renewals)), verdicts)
	var again []int
	for i, v := range verdicts {
		if errors.Is(v.Err, locker.ErrLate) && b.node.now() < renewals[i].NotAfter {
			again = append(again, i)
		}
	}
	b.renew(ctx, renewals, again, verdicts)
	b.tellStep(verdicts)
	return verdicts
}

// renew sends the renewals at the indexes which and sets their verdicts.
func (b *Backend) renew(ctx context.Context, renewals []locker.Renewal, which []int, verdicts []locker.Verdict) {
	b.inBatches(ctx, b.node.renew, which, verdicts, func(which []int) *call {
		c := &call{script: renewScript, keys: make([]string, len(which))}
		for i, at := range which {
			c.keys[i] = b.keys.lock(renewals[at].Key)
		}
		c.args = func(at func(locker.Instant) string) []string {
			args := make([]string, 0, 2+3*len(which))
			args = append(args, b.keys.companion(), millis(recordOutlives))
			for _, i := range which {
				r := renewals[i]
				args = append(args, r.Token.Reveal(), millisOrNone(r.Keep), at(r.NotAfter))
			}
			return args
		}
		return c
	})
}

// Release implements [locker.Backend].
func (b *Backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	ctx, cancel := b.node.release.bounded(ctx)
	defer cancel()
	verdicts := make([]locker.Verdict, len(surrenders))
	b.inBatches(ctx, b.node.release, indexes(len(surrenders)), verdicts, func(which []int) *call {
		c := &call{script: releaseScript, keys: make([]string, len(which))}
		for i, at := range which {
			c.keys[i] = b.keys.lock(surrenders[at].Key)
		}
		c.args = func(func(locker.Instant) string) []string {
			args := make([]string, 0, 2+3*len(which))
			args = append(args, b.keys.prefix, millis(recordOutlives))
			for _, i := range which {
				s := surrenders[i]
				args = append(args, surrenderArgs(s)...)
			}
			return args
		}
		return c
	})
	b.tellStep(verdicts)
	return verdicts
}

// surrenderArgs are a script's arguments for a lock that is given back.
func surrenderArgs(s locker.Surrender) []string {
	return []string{s.Token.Reveal(), millisOrNone(s.Keep), locker.Tombstone(s.Holder, locker.TombstoneMinHold)}
}

// inBatches makes calls of up to maxKeys locks each, sends them together and
// sets the verdict of every lock whose index is in which.
func (b *Backend) inBatches(ctx context.Context, p *pipeline, which []int, verdicts []locker.Verdict, newCall func(which []int) *call) {
	if len(which) <= maxKeys {
		if len(which) > 0 {
			c := newCall(which)
			c.setVerdicts(p.do(ctx, c), which, verdicts)
		}
		return
	}
	var calls []*call
	parts := slices.Collect(slices.Chunk(which, maxKeys))
	for _, part := range parts {
		c := newCall(part)
		calls = append(calls, c)
		p.submit(ctx, c)
	}
	for i, c := range calls {
		c.setVerdicts(p.await(ctx, c), parts[i], verdicts)
	}
}

// setVerdicts sets the verdicts at the indexes which from the call's answer,
// or from err if there was none.
func (c *call) setVerdicts(err error, which []int, verdicts []locker.Verdict) {
	for i, at := range which {
		if err != nil {
			verdicts[at] = locker.Verdict{Err: err}
			continue
		}
		verdicts[at] = locker.Verdict{Err: c.verdict(i), Reading: locker.Reading{UnixMicro: c.micros}}
	}
}

// verdict reads the verdict on the call's lock i.
func (c *call) verdict(i int) error {
	text, err := c.text(i)
	if err != nil {
		return err
	}
	switch text {
	case "ok":
		return nil
	case "taken":
		return locker.ErrTaken
	case "gone":
		return locker.ErrGone
	case "late":
		return locker.ErrLate
	}
	if reply, ok := strings.CutPrefix(text, "-"); ok {
		return replyFailure(reply)
	}
	return unreadable("the verdict on a lock is none of those known")
}

// tellStep puts a step of the server's clock into one verdict, so that it is
// counted once.
func (b *Backend) tellStep(verdicts []locker.Verdict) {
	for i := range verdicts {
		if verdicts[i].UnixMicro != 0 {
			verdicts[i].Step = b.node.clock.takeStep()
			return
		}
	}
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
