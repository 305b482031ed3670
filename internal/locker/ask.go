package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// retryPause is the least pause before a request with an unknown outcome is
// sent again.
const retryPause = 5 * time.Millisecond

// splitPauseMin is how long a claim waits at most after it was first in a split
// vote.
const splitPauseMin = 8 * time.Millisecond

// ask sends the claim until its outcome is known or the deadline is over, and
// new ones after a split vote. The error is the least certain outcome of all
// attempts, save that a certain "held" is told as such.
func (l *Locker) ask(g *grant, deadline Instant) (Grant, error) {
	unknown := error(nil)
	for tries, splits := 0, 0; ; {
		ctx, claim := l.claim(g, deadline)
		answer, err := l.backend.Acquire(ctx.Context, claim)
		ctx.cancel()
		again, pause := false, time.Duration(0)
		l.mu.Lock()
		l.answeredLocked(g, answer.Reading, err, l.now())
		switch {
		case errors.Is(err, ErrSplitVote):
			l.anewLocked(g, l.now())
			again, pause, unknown = true, splitPause(splits), nil
			splits++
		case err != nil && !CertainNo(err), errors.Is(err, ErrLate):
			if !CertainNo(err) {
				unknown = err
			}
			again, pause = true, retryPause<<tries
			tries++
		}
		l.mu.Unlock()
		if again && l.now().Add(pause) < deadline {
			time.Sleep(pause)
			if l.writeNotes() != nil {
				return Grant{}, ErrNotRecorded
			}
			continue
		}
		if err == nil || unknown == nil {
			return answer, err
		}
		var held *HeldError
		if errors.As(err, &held) {
			return answer, err
		}
		return answer, unknown
	}
}

// answeredLocked takes in what an answer to a claim tells of earlier ones.
func (l *Locker) answeredLocked(g *grant, r Reading, err error, now Instant) {
	l.learnLocked(r, now)
	if err == nil {
		return
	}
	var held *HeldError
	switch {
	case !CertainNo(err):
		g.inDoubt = true
		g.unanswered(g.sentUntil)
	case errors.As(err, &held) && g.sent > g.lateUntil:
		// Another has it, and what was not answered cannot be executed any more.
		g.inDoubt = false
	}
}

// anewLocked has a grant asked for under a token that was never sent. What is
// in doubt of the old one is undone.
func (l *Locker) anewLocked(g *grant, now Instant) {
	if g.inDoubt {
		c := l.addChoreLocked(g, true, now)
		l.noteChoreLocked(c)
		l.scheduleLocked(c, now)
	} else {
		l.noteOverLocked(g.id)
	}
	l.reissueLocked(g)
}

// reissueLocked gives a grant that is asked for a token that was never sent.
// The note of that must be written before it is.
func (l *Locker) reissueLocked(g *grant) {
	l.lastID++
	g.id, g.token = l.lastID, NewToken(l.cfg.Holder)
	g.inDoubt, g.lateUntil, g.storeUntil = false, 0, 0
	l.noteLocked(g, PhaseAsking)
}

// splitPause is how long to wait before asking anew after so many split votes
// and one more: everybody another time, so that one comes alone.
func splitPause(before int) time.Duration { return rand.N(splitPauseMin << min(before, 4)) }

type boundedContext struct {
	context.Context
	cancel context.CancelFunc
}

// claim writes down one attempt. Its context is not the caller's: a request
// that was sent is seen through to its answer.
func (l *Locker) claim(g *grant, deadline Instant) (boundedContext, Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if !g.inDoubt {
		g.asked = now
	}
	_, keep, _ := g.leaseFrom(now)
	g.sent, g.sentUntil = now, deadline
	g.sending(deadline, keep)
	ctx, cancel := context.WithTimeout(context.Background(), deadline.Sub(now))
	return boundedContext{ctx, cancel}, Claim{
		Key: g.key, Token: g.token, Holder: l.cfg.Holder, Note: g.note,
		Keep: keep, Floor: l.floor.now(now), NotAfter: deadline,
	}
}
