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
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	verdicts := make([]locker.Verdict, len(renewals))
	b.renew(ctx, renewals, indexes(len(renewals)), verdicts)
	var again []int
	for i, v := range verdicts {
		if errors.Is(v.Err, locker.ErrLate) && b.now() < renewals[i].NotAfter {
			again = append(again, i)
		}
	}
	b.renew(ctx, renewals, again, verdicts)
	return verdicts
}

// renew sends the renewals at the indexes which and sets their verdicts.
func (b *Backend) renew(ctx context.Context, renewals []locker.Renewal, which []int, verdicts []locker.Verdict) {
	lock := func(i int) string { return b.keys.lock(renewals[i].Key) }
	b.inBatches(ctx, toRenew, which, verdicts, lock, func(c *call) {
		c.script = renewScript
		c.replicated = slices.ContainsFunc(c.which, func(i int) bool { return renewals[i].Keep > 0 })
		c.args = func(at func(locker.Instant) string) []string {
			args := make([]string, 0, 2+3*len(c.which))
			args = append(args, b.keys.companion(), millis(recordOutlives))
			for _, i := range c.which {
				r := renewals[i]
				args = append(args, r.Token.Reveal(), millisOrNone(r.Keep), at(r.NotAfter))
			}
			return args
		}
		c.check = func() { // a verification writes nothing that could be counted
			for _, i := range c.which {
				if c.acked < b.minReplicas && renewals[i].Keep > 0 && verdicts[i].Err == nil {
					verdicts[i].Err = b.notReplicated(c)
				}
			}
		}
	})
}

// Release implements [locker.Backend].
func (b *Backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	verdicts := make([]locker.Verdict, len(surrenders))
	lock := func(i int) string { return b.keys.lock(surrenders[i].Key) }
	b.inBatches(ctx, toRelease, indexes(len(surrenders)), verdicts, lock, func(c *call) {
		c.script = releaseScript
		c.args = func(func(locker.Instant) string) []string {
			args := make([]string, 0, 2+3*len(c.which))
			args = append(args, b.keys.prefix, millis(recordOutlives))
			for _, i := range c.which {
				args = append(args, surrenderArgs(surrenders[i])...)
			}
			return args
		}
	})
	return verdicts
}

// surrenderArgs are a script's arguments for a lock that is given back.
func surrenderArgs(s locker.Surrender) []string {
	if s.Quiet && s.Keep <= 0 {
		return []string{s.Token.Reveal(), "0", ""}
	}
	return []string{s.Token.Reveal(), millisOrNone(s.Keep), locker.Tombstone(s.Holder, locker.TombstoneMinHold)}
}

// inBatches sends calls of up to maxKeys locks each and sets the verdict of
// every lock whose index is in which. lock names the lock at an index; fill
// makes a call for the locks at its indexes.
func (b *Backend) inBatches(ctx context.Context, to purpose, which []int, verdicts []locker.Verdict, lock func(int) string, fill func(*call)) {
	part := func(which []int) *call {
		c := &call{which: which, keys: make([]string, len(which))}
		for i, at := range which {
			c.keys[i] = lock(at)
		}
		fill(c)
		return c
	}
	var calls []*call
	for _, which := range b.groups(which, lock) {
		for which := range slices.Chunk(which, maxKeys) {
			c := part(which)
			c.part = part
			calls = append(calls, c)
		}
	}
	if len(calls) > 0 {
		b.sendAll(ctx, to, calls, func(c *call, err error) {
			c.setVerdicts(err, verdicts)
			if err == nil && c.check != nil {
				c.check()
			}
		})
	}
}

// groups divides indexes of locks into those that may be in one call.
func (b *Backend) groups(which []int, lock func(int) string) [][]int {
	if !b.servers.apart() {
		return [][]int{which}
	}
	var groups [][]int
	bySlot := make(map[int]int) // the index of its group
	for _, i := range which {
		slot := slotOf(lock(i))
		at, known := bySlot[slot]
		if !known {
			at = len(groups)
			bySlot[slot] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// setVerdicts sets the verdicts at the call's indexes from its answer, or from
// err if there was none.
func (c *call) setVerdicts(err error, verdicts []locker.Verdict) {
	if err != nil {
		for _, at := range c.which {
			verdicts[at] = locker.Verdict{Err: err}
		}
		return
	}
	reading := c.node.reading(c.micros)
	for i, at := range c.which {
		verdicts[at] = locker.Verdict{Err: c.verdict(i), Reading: reading}
		reading.Step = 0 // so that it is counted once
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

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
