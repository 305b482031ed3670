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
	}
}

// Refuse begins a shutdown: no new lock is granted, all waits end, and a
// lock whose request is on its way is given back. Everything else goes on until Shutdown.
func (l *Locker) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing == nil {
		close(l.refused)
	}
	l.refusing, l.closing = ErrShuttingDown, true
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
	return l.count(dropped)
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
		case mode != ModeRelease && g.tethers <= 0, mode == ModeDrop && last:
			l.dropLocked(g)
			c := l.addChoreLocked(g, false, now)
			c.heldFor = now.Sub(g.asked)
			batch = append(batch, c)
		default:
			held++
		}
	}
	return batch, held, l.changed
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
