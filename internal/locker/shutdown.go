package locker

import (
	"context"
	"time"
)

// Drain refuses new locks from now on, ends all waits and keeps all else going.
func (l *Locker) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing == nil {
		l.refusing = ErrDraining
		close(l.refused)
		l.tellAllLocked()
		l.newsLocked()
	}
}

// Refuse begins a shutdown: no new lock is granted, all waits end, and a
// lock whose request is on its way is given back. Everything else goes on until Shutdown.
func (l *Locker) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing == nil {
		close(l.refused)
		defer l.tellAllLocked()
	}
	l.refusing, l.closing = ErrShuttingDown, true
	l.newsLocked()
}

// tellAllLocked tells those who follow any grant to look.
func (l *Locker) tellAllLocked() {
	for _, g := range l.held {
		g.changedLocked()
	}
}

// Draining tells whether new locks are refused.
func (l *Locker) Draining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusing != nil
}

// Shutdown ends what is held, as the mode says, and returns what became of it.
// It waits at most grace for locks to be cleared (the connections over which
// they were granted have closed) or released; renewals must go on meanwhile.
// Then it drops what may be dropped, until ctx is over.
func (l *Locker) Shutdown(ctx context.Context, mode ReleaseMode, grace time.Duration) Counts {
	l.Refuse()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	var dropped []*chore
	for waiting := true; ; {
		batch, held, changed := l.takeCleared(mode, !waiting)
		awaitHeard(batch)
		l.performAll(batch)
		dropped = append(dropped, batch...)
		if len(batch) > 0 && held > 0 {
			continue // look again: more may have been cleared meanwhile
		}
		if held == 0 || !waiting {
			break
		}
		select {
		case <-changed:
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	l.finish(ctx)
	counts := l.count(dropped)
	l.abandon()
	return counts
}

// takeCleared takes out of the table what the mode lets a shutdown drop now,
// and tells how many locks remain. last says that nothing is waited for any
// more.
func (l *Locker) takeCleared(mode ReleaseMode, last bool) (batch []*chore, held int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, g := range l.held {
		if !l.aliveLocked(g, now) {
			continue
		}
		switch {
		case mode != ModeRelease && g.tethers <= 0 && !g.bound, mode == ModeDrop && last:
			l.dropLocked(g)
			c := l.addChoreLocked(g, false, now)
			c.heldFor = now.Sub(g.asked)
			l.noteChoreLocked(c)
			if g.watchedLocked() {
				c.heard = g.endLocked(EventLost, l.rememberLossLocked(g, CauseShutdown, now), now, now)
			}
			batch = append(batch, c)
		default:
			held++
		}
	}
	return batch, held, l.changed
}

// abandon tells those who follow what is left to end by its TTL that nobody
// renews it any more, and waits until they have heard of it, but not for long.
func (l *Locker) abandon() {
	l.mu.Lock()
	now := l.now()
	var left []*chore
	for _, g := range l.held {
		if !l.aliveLocked(g, now) || g.audience == nil {
			continue
		}
		// Its connections end with this process, and must not release it.
		l.dropLocked(g)
		lost := l.rememberLossLocked(g, CauseShutdown, now)
		left = append(left, &chore{heard: g.endLocked(EventLost, lost, g.validUntil, now)})
	}
	l.mu.Unlock()
	awaitHeard(left)
}

// finish waits, while ctx lasts, until every request for a lock has had its
// outcome and everything that is being given back has been confirmed.
func (l *Locker) finish(ctx context.Context) {
	for {
		settled, changed := l.unfinished()
		if settled == nil && changed == nil {
			return
		}
		select {
		case <-settled:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// unfinished returns when to look again: settled if something is being given
// back, changed if something is being asked for, else nil.
func (l *Locker) unfinished() (settled, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.askCount > 0 {
		changed = l.changed
	}
	for key := range l.chores {
		if c := l.unsettledLocked(key); c != nil {
			return c.settled, changed
		}
	}
	return nil, changed
}

func (l *Locker) count(dropped []*chore) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	counts := Counts{Released: l.released}
	for _, c := range dropped {
		if c.isSettled() {
			counts.Dropped++
			l.observe.Released(ReleaseDropped, c.heldFor)
		} else {
			counts.Unconfirmed++
			l.observe.Released(ReleaseUnconfirmed, c.heldFor)
		}
	}
	for _, g := range l.held {
		if g.valid(now) {
			counts.Left++
		}
	}
	return counts
}
