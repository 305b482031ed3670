package locker

import (
	"context"
	"errors"
	"time"
)

// retryPause is the least pause before a request with an unknown outcome is
// sent again.
const retryPause = 5 * time.Millisecond

// ask sends the claim until its outcome is known or the deadline is over. The
// error is the least certain outcome of all attempts, save that a certain
// "held" is told as such.
func (l *Locker) ask(g *grant, deadline Instant) (Grant, error) {
	unknown := error(nil)
	for pause := retryPause; ; pause *= 2 {
		ctx, claim := l.claim(g, deadline)
		answer, err := l.backend.Acquire(ctx.Context, claim)
		ctx.cancel()
		l.mu.Lock()
		l.answeredLocked(g, answer.Reading, err, l.now())
		if err != nil && !CertainNo(err) {
			unknown = err
		}
		l.mu.Unlock()
		again := err != nil && (!CertainNo(err) || errors.Is(err, ErrLate))
		if again && l.now().Add(pause) < deadline {
			time.Sleep(pause)
			continue
		}
		var held *HeldError
		if err == nil || unknown == nil || errors.As(err, &held) {
			return answer, err
		}
		return answer, unknown
	}
}

// answeredLocked takes in what an answer to a claim tells of earlier ones.
func (l *Locker) answeredLocked(g *grant, r Reading, err error, now Instant) {
	l.learnLocked(r, now)
	var held *HeldError
	switch {
	case err != nil && !CertainNo(err):
		g.inDoubt = true
		g.unanswered(g.sentUntil)
	case errors.As(err, &held) && g.sent > g.lateUntil:
		// Another has it, and what was not answered cannot be executed any more.
		g.inDoubt = false
	}
}

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
