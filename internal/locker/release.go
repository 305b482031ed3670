package locker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Release gives back the grant that the handle names. From the moment it is
// accepted the lock is not held and not renewed, whatever the outcome. The
// errors:
//
//   - ErrNotHeld: there is nothing to give back.
//   - ErrOwnerMismatch: the lock is another worker's; also if it has an owner
//     and the handle names neither owner nor grant.
//   - *LostError: that grant was lost, so an unlock must not pretend. It is
//     forgotten with this answer.
//   - *UnconfirmedError: the store did not confirm it; it is being repeated,
//     and a repeated Release tells how it went.
func (l *Locker) Release(ctx context.Context, key Key, h Handle, o ReleaseOptions) error {
	c, first, err := l.surrender(key, h, o)
	if err != nil || c == nil {
		return err
	}
	if !first {
		l.hurry(ctx, c)
	} else {
		awaitHeard([]*chore{c})
		if !l.handOver(c) {
			l.attempt(c)
		}
	}
	return l.tellOutcome(c, first)
}

// surrender takes the grant that the handle names out of the table. first is
// false if that had been done by an earlier Release that is still unconfirmed;
// c is nil without an error if that one has been confirmed meanwhile.
func (l *Locker) surrender(key Key, h Handle, o ReleaseOptions) (c *chore, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	given := h
	if o.Force {
		h.Owner = ""
	}
	g := l.heldLocked(key, now)
	if g != nil && g.matches(h) {
		if !o.Force && g.owner != "" && h == (Handle{}) {
			return nil, false, ErrOwnerMismatch
		}
		named := given != (Handle{}) && g.matches(given)
		if o.Force && !named {
			c = l.revokeLocked(g, CauseRevoked, o.SkipMinHold, now)
		} else {
			var heard <-chan struct{}
			c, heard = l.giveLocked(g, o.SkipMinHold, true, now)
			if g.bound && !named {
				c.heard = heard // its holder may be at work
			}
		}
		return c, true, nil
	}
	for _, c := range slices.Backward(l.chores[key]) {
		if c.matches(h) && (!c.isSettled() || c.told) {
			if o.SkipMinHold && !c.isSettled() { // what was sent may not have been carried out
				c.keepUntil = 0
				l.noteChoreLocked(c)
			}
			return c, false, nil
		}
	}
	if e := l.endings.find(key, h, now); e != nil {
		return nil, false, l.tellLocked(e)
	}
	if g != nil {
		return nil, false, ErrOwnerMismatch
	}
	return nil, false, ErrNotHeld
}

// giveLocked takes a held grant out of the table, to be given back; revocable
// if it may be asked how that went. heard is closed once those who follow it
// know; nil if nobody does.
func (l *Locker) giveLocked(g *grant, skipMinHold, revocable bool, now Instant) (c *chore, heard <-chan struct{}) {
	l.dropLocked(g)
	if l.closing {
		l.released++
	}
	c = l.addChoreLocked(g, skipMinHold, now)
	c.heldFor, c.revocable = now.Sub(g.asked), revocable
	l.noteChoreLocked(c)
	return c, g.endLocked(EventReleased, nil, now, now)
}

// revokeLocked is giveLocked for one that its holder has not given back: those
// who follow it are told of a loss before it is freed, and can ask for it later.
func (l *Locker) revokeLocked(g *grant, cause Cause, skipMinHold bool, now Instant) *chore {
	var heard <-chan struct{}
	if g.watchedLocked() {
		heard = g.endLocked(EventLost, l.rememberLossLocked(g, cause, now), now, now)
	}
	c, _ := l.giveLocked(g, skipMinHold, true, now)
	c.heard = heard
	return c
}

// tellLocked tells a Release how the grant ended, and forgets it.
func (l *Locker) tellLocked(e *ending) error {
	l.endings.drop(e)
	l.newsLocked()
	if e.lost != nil {
		return e.lost
	}
	return nil
}

// hurry has the janitor repeat a release now and waits for its outcome for at
// most the store timeout.
func (l *Locker) hurry(ctx context.Context, c *chore) {
	l.mu.Lock()
	if c.index >= 0 && !c.isSettled() {
		l.scheduleLocked(c, l.now())
	}
	l.mu.Unlock()
	timer := time.NewTimer(l.cfg.StoreTimeout)
	defer timer.Stop()
	select {
	case <-c.settled:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// tellOutcome tells how a release went.
func (l *Locker) tellOutcome(c *chore, first bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first {
		l.countReleaseLocked(c, ReleaseDone)
	}
	if !c.isSettled() {
		c.told = true
		return &UnconfirmedError{FreeWithin: max(0, c.giveUp.Sub(l.now()))}
	}
	if c.told { // as unconfirmed, so that its end may be remembered
		c.told = false // this answer tells it
		if e := l.endings.find(c.key, Handle{Fence: c.fence}, l.now()); e != nil && e.fence == c.fence {
			l.endings.drop(e)
			l.newsLocked()
		}
	}
	if c.outcome != nil {
		return &LostError{Fence: c.fence, Cause: causeOf(c.outcome), LostAt: time.Now()}
	}
	return nil
}

// countReleaseLocked counts how the first attempt at a release went, as done
// if the store has confirmed it, and tells of what went wrong.
func (l *Locker) countReleaseLocked(c *chore, done ReleaseResult) {
	switch {
	case !c.isSettled():
		l.observe.Released(ReleaseUnconfirmed, c.heldFor)
		l.lineLocked(slog.LevelWarn, "release not confirmed by the store: repeating it", "key", c.key, "fence", c.fence)
	case c.outcome != nil:
		l.observe.Released(ReleaseNotOurs, c.heldFor)
		l.observe.Lost(causeOf(c.outcome), c.heldFor)
		l.lineLocked(slog.LevelError, "lock lost: found at its release", "key", c.key, "fence", c.fence,
			"cause", causeOf(c.outcome), "owner", c.owner)
	default:
		l.observe.Released(done, c.heldFor)
	}
}

// ReleaseWhere gives back all that the owner holds here, or all that anybody
// does. unconfirmed lists what the store did not confirm in time; those are
// being repeated.
func (l *Locker) ReleaseWhere(ctx context.Context, owner string, all bool) (released, unconfirmed []Key) {
	l.mu.Lock()
	now := l.now()
	var batch []*chore
	for _, g := range l.held {
		if (all || g.owner == owner) && l.aliveLocked(g, now) {
			var c *chore
			if all {
				c = l.revokeLocked(g, CauseRevoked, false, now)
			} else {
				c, _ = l.giveLocked(g, false, true, now)
			}
			batch = append(batch, c)
		}
	}
	l.mu.Unlock()
	awaitHeard(batch)
	l.performAll(batch)
	for _, c := range batch {
		var open *UnconfirmedError
		if errors.As(l.tellOutcome(c, true), &open) {
			unconfirmed = append(unconfirmed, c.key)
		} else {
			released = append(released, c.key)
		}
	}
	slices.Sort(released)
	slices.Sort(unconfirmed)
	return released, unconfirmed
}

// performAll does chores that are not in the queue, in batches side by side.
func (l *Locker) performAll(batch []*chore) {
	const abreast = 4
	work := make(chan []*chore)
	var wg sync.WaitGroup
	for range min(abreast, (len(batch)+choreBatch-1)/choreBatch) {
		wg.Go(func() {
			for part := range work {
				l.perform(part)
			}
		})
	}
	for part := range slices.Chunk(batch, choreBatch) {
		work <- part
	}
	close(work)
	wg.Wait()
}

// GiveBack undoes a grant whose answer did not reach the caller, unless
// another answer has reported it.
func (l *Locker) GiveBack(id GrantID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	g := l.byID[id]
	if g == nil || !l.aliveLocked(g, now) {
		return
	}
	g.answers--
	g.tethers--
	l.signalLocked()
	if g.answers > 0 || g.published || g.bound {
		return
	}
	c, _ := l.giveLocked(g, true, false, now)
	l.observe.Released(ReleaseGivenBack, c.heldFor)
	l.lineLocked(slog.LevelInfo, "grant given back: the caller had gone before it was told", "key", c.key, "fence", c.fence)
	l.scheduleLocked(c, now)
}

// Cleared takes in that the connection over which a grant was told has closed,
// after the answer had arrived. It matters to a shutdown alone.
func (l *Locker) Cleared(id GrantID) {
	l.mu.Lock()
	if g := l.byID[id]; g != nil {
		g.published = true
		g.tethers--
		if !l.provenLocked(g) && g.tethers == 0 {
			l.noteLocked(g, PhaseDelivered)
		}
		l.signalLocked()
	}
	l.mu.Unlock()
	_ = l.writeNotes()
}
