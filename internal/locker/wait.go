package locker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// How often a waiter asks again after trouble, and a backend that keeps no
// line is asked at all; both grow from the least to the most.
const (
	pollMin = 50 * time.Millisecond
	pollMax = AskEvery
)

// waitInLine has a caller that is in line wait for a grant until the wait is
// over, ctx ends or the sidecar refuses new locks. It outlives trouble with the
// store once the store has answered.
func (l *Locker) waitInLine(ctx context.Context, g *grant, most time.Duration) (Status, error) {
	l.mu.Lock()
	w, refused := g.waiter, l.refused
	l.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		got, wait := l.nextStep(w, ctx.Err() != nil)
		switch {
		case got != nil:
			st, done, err := l.takeIn(ctx, w, *got)
			if done {
				return st, err
			}
			continue
		case wait < 0:
			answer, err := l.askInLine(w)
			st, done, err := l.takeIn(ctx, w, handed{answer, err})
			if done {
				return st, err
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-w.nudge:
		case <-timer.C:
			if done, err := l.giveUpOverdue(w); done {
				return Status{}, err
			}
		case <-ctx.Done():
			if done, err := l.giveUpIdle(w, ErrCallerGone); done {
				return Status{}, err
			}
			<-w.nudge // the hand-over's outcome is to be undone
		case <-refused:
			if done, err := l.giveUpIdle(w, l.refusal()); done {
				return Status{}, err
			}
			<-w.nudge
		}
	}
}

// nextStep says what a waiter does now: take in what a hand-over brought, ask
// (wait below 0), or wait. Nothing is asked any more for one that is leaving.
func (l *Locker) nextStep(w *waiter, leaving bool) (got *handed, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	switch {
	case w.given != nil:
		got, w.given = w.given, nil
		return got, 0
	case w.asking:
		return nil, time.Hour // a hand-over, which will nudge
	case leaving, l.refusing != nil:
		return nil, max(0, w.ends.Sub(now))
	}
	mine := w.number == 0 || l.lines[w.g.key].oldest() == w || l.line == nil
	if mine && w.askAt <= now && now < w.ends || w.never() {
		w.asking = true
		return nil, -1
	}
	until := w.ends
	if mine {
		until = min(until, w.askAt)
	}
	return nil, max(0, until.Sub(now))
}

// never tells whether nothing has been asked for the waiter yet.
func (w *waiter) never() bool { return w.number == 0 && w.held == nil && w.trouble == nil }

func (l *Locker) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusing
}

// askInLine sends the waiter's claim once. The waiter is marked as asking.
func (l *Locker) askInLine(w *waiter) (Grant, error) {
	if !l.record(w) {
		return Grant{}, ErrNotRecorded
	}
	deadline := l.now().Add(l.cfg.StoreTimeout)
	ctx, claim := l.claim(w.g, deadline)
	defer ctx.cancel()
	if l.line == nil {
		l.countPoll(w)
		return l.backend.Acquire(ctx, claim)
	}
	l.mu.Lock()
	turn := l.turnLocked(w, l.now())
	l.mu.Unlock()
	l.countPoll(w)
	return l.line.AcquireInLine(ctx, claim, turn)
}

// record has the waiter's token in the journal before it is sent.
func (l *Locker) record(w *waiter) bool {
	l.mu.Lock()
	recorded := w.recorded
	l.mu.Unlock()
	if recorded {
		return true
	}
	err := l.writeNotes()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.noteLocked(w.g, PhaseAsking) // that record is lost, and the next try needs one
		return false
	}
	w.recorded = true
	return true
}

// countPoll counts a request that no hint has called for, unless it is the
// first.
func (l *Locker) countPoll(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.never() && w.hinted == 0 {
		l.observe.Polled()
	}
}

// takeIn takes in the outcome of a request for a waiter. done says that the
// wait is over, with that status and error.
func (l *Locker) takeIn(ctx context.Context, w *waiter, got handed) (st Status, done bool, err error) {
	if got.err == nil {
		got.err = l.writeGrant(w.g, got.answer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	w.asking = false
	hinted := w.hinted
	w.hinted = 0
	defer w.follow(hinted, now)
	l.answeredLocked(w.g, got.answer.Reading, got.err, now)
	var held *HeldError
	switch err := got.err; {
	case err == nil && w.g.usedUp(got.answer, now):
		// Granted long ago, by a request that was not answered until now.
		c := l.addChoreLocked(w.g, true, now)
		l.noteChoreLocked(c)
		l.scheduleLocked(c, now)
		l.renewLocked(w, now)
	case err == nil:
		if hinted != 0 {
			l.observe.HandedOver(now.Sub(hinted))
		}
		l.leaveLocked(w, now)
		if next := l.lines[w.g.key].oldest(); next != nil && (next.number == 0 || next.number != w.rest) {
			next.askNoLaterThan(now) // it came too late to be left the place
		}
		st, err := l.grantLocked(ctx, w.g, got.answer, now)
		return st, true, err
	case errors.As(err, &held):
		if w.held == nil { // once, however long it waits
			l.orphanLocked(w.g.key, held)
		}
		w.held, w.trouble, w.failures = held, nil, 0
		l.newsLocked()
		if held.Standing != nil {
			l.numberLocked(w, held.Standing.Number)
			w.askAt = now.Add(held.Standing.AskIn)
		} else {
			w.failures++
			w.askAt = now.Add(w.pause())
		}
		if held.Spent {
			l.anewLocked(w.g, now)
			w.recorded = l.cfg.Journal == nil
		}
	case errors.Is(err, ErrKeyConflict):
		return Status{}, true, l.giveUpLocked(w, err, now)
	case errors.Is(err, ErrSpent):
		// Granted by a request that was not answered, and over by now.
		l.noteOverLocked(w.g.id)
		l.renewLocked(w, now)
	case errors.Is(err, errGrantNotRecorded):
		w.trouble = err
		return Status{}, true, l.giveUpLocked(w, ErrAcquireUnresolved, now)
	case errors.Is(err, ErrSplitVote):
		w.trouble = err
		w.askAt = now.Add(splitPause(w.failures))
		w.failures++
		l.anewLocked(w.g, now)
		w.recorded = l.cfg.Journal == nil
	case CertainNo(err) && !errors.Is(err, ErrLate) && w.never():
		return Status{}, true, l.giveUpLocked(w, err, now)
	default:
		w.trouble = err
		w.failures++
		w.askAt = now.Add(w.pause())
		if spent(err) {
			l.anewLocked(w.g, now)
			w.recorded = l.cfg.Journal == nil
		}
	}
	return Status{}, false, nil
}

// follow has the waiter ask when it was told to while it was asking.
func (w *waiter) follow(hinted, now Instant) {
	if w.askBy == 0 {
		return
	}
	w.askAt = min(w.askAt, w.askBy)
	if w.askBy <= now {
		w.hinted = hinted
	}
	w.askBy = 0
}

// renewLocked has the waiter go on with a token that was never sent.
func (l *Locker) renewLocked(w *waiter, now Instant) {
	l.reissueLocked(w.g)
	w.askAt = now
	w.recorded = l.cfg.Journal == nil
}

// pause is how long to wait before asking again without a hint; jitter only
// shortens it.
func (w *waiter) pause() time.Duration {
	pause := min(pollMin<<min(max(w.failures-1, 0), 10), pollMax)
	return pause - rand.N(pause/4)
}

// giveUpIdle ends a wait without a grant, unless a request is on its way for the
// waiter: a hand-over can begin at any time as long as it is in line.
func (l *Locker) giveUpIdle(w *waiter, why error) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.asking || w.given != nil {
		return false, nil
	}
	return true, l.giveUpLocked(w, why, l.now())
}

// giveUpOverdue is giveUpIdle for a wait whose time may be over.
func (l *Locker) giveUpOverdue(w *waiter) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now < w.ends || w.asking || w.given != nil {
		return false, nil
	}
	return true, l.giveUpLocked(w, nil, now)
}

// giveUpLocked ends a wait without a grant. why is nil if its time is over.
func (l *Locker) giveUpLocked(w *waiter, why error, now Instant) error {
	g := w.g
	at := l.lines[g.key]
	oldest := l.leaveLocked(w, now)
	l.askedLocked(g)
	if l.line != nil && (oldest || len(at.waiters) == 0) {
		var rest int64
		if next := at.oldest(); next != nil {
			rest = next.number
			next.askNoLaterThan(w.askAt) // as was promised to the store for the place
		}
		switch {
		case len(at.waiters) == 0:
			l.departLocked(g.key, 0, 0)
		case w.number != 0 && rest != 0 && l.refusing == nil:
			l.departLocked(g.key, w.number, rest)
		}
	}
	if why == nil {
		why = w.verdict(l.heldLocked(g.key, now) != nil)
	}
	if g.lateUntil != 0 && g.inDoubt {
		l.scheduleLocked(l.addChoreLocked(g, true, now), now)
		if errors.Is(why, ErrAcquireUnresolved) {
			l.lineLocked(slog.LevelWarn, "it is not known whether the lock was taken: undoing it", "key", g.key, "err", w.trouble)
		}
	} else {
		l.noteOverLocked(g.id)
	}
	if errors.Is(why, ErrKeyConflict) {
		l.conflictLocked(g.key, why)
	}
	return why
}

// verdict is the answer to a wait whose time is over.
func (w *waiter) verdict(heldHere bool) error {
	switch {
	case w.trouble != nil && (w.g.inDoubt || !CertainNo(w.trouble)):
		return ErrAcquireUnresolved
	case w.trouble != nil:
		return certainly(w.trouble)
	}
	held := HeldError{Occupancy: Occupancy{State: OccupancyUnknown}}
	if w.held != nil {
		held = *w.held
	}
	held.TimedOut, held.HeldHere = true, heldHere
	return &held
}

// handOver gives back what a chore is about and has the store grant it to the
// next waiter of this sidecar in the same step, if there is one and nobody
// elsewhere is ahead of it. False means that nothing was done. The chore is one
// that was made just now.
func (l *Locker) handOver(c *chore) bool {
	_ = l.writeNotes() // as in perform
	l.mu.Lock()
	now := l.now()
	w := l.lines[c.key].oldest()
	if l.line == nil || l.refusing != nil || w == nil || w.number == 0 || !w.recorded || w.asking || w.given != nil || c.keepUntil > now || w.ends <= now {
		l.mu.Unlock()
		return false
	}
	w.asking = true
	turn, surrender := l.turnLocked(w, now), c.surrender(l.cfg.Holder, now)
	l.mu.Unlock()

	ctx, claim := l.claim(w.g, now.Add(l.cfg.StoreTimeout))
	defer ctx.cancel()
	verdict, answer, err := l.line.HandOver(ctx, surrender, claim, turn)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.learnLocked(verdict.Reading, l.now())
	l.settleLocked(c, now, verdict.Err, l.now())
	w.hinted = now
	w.given = &handed{answer, err}
	w.look()
	return true
}
