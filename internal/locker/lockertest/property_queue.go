package lockertest

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// waitingClaim is a caller of a walk that is in line, for all that it knows.
type waitingClaim struct {
	claim   locker.Claim
	process *process
	number  int64 // 0 if it was never told
}

// spoken is a turn that was sent before, and may be executed late.
type spoken struct {
	claim locker.Claim
	turn  locker.Turn
}

// queueActions are what processes in line can do.
func (w *walk) queueActions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"join": w.join, "ask": w.ask, "leave": w.leave, "hand over": w.handOver,
		"ask late": w.askLate, "leave late": w.leaveLate,
	}
}

// patience draws how long a process waits at most.
func (w *walk) patience(t *rapid.T) time.Duration {
	if !w.h.bubble {
		return w.span(t, "patience")
	}
	return time.Duration(rapid.IntRange(0, 300).Draw(t, "patience"))*step + step/2
}

// turn is that of a caller of a process in the walk.
func (w *walk) turn(t *rapid.T, p *process, key locker.Key, number int64) locker.Turn {
	turn := p.turn(number, 0)
	turn.WaitLeft = w.patience(t)
	for _, other := range w.waiting {
		if other.process == p && other.claim.Key == key && other.number != number && other.number != 0 {
			if turn.Rest == 0 || other.number < turn.Rest {
				turn.Rest = other.number
			}
		}
	}
	return turn
}

func (w *walk) join(t *rapid.T) {
	p := w.processes[rapid.IntRange(0, len(w.processes)-1).Draw(t, "process")] // which is not to be printed: it hears hints
	c := w.h.claim(rapid.SampledFrom(w.keys).Draw(t, "key"), w.span(t, "keep"))
	c.NotAfter = w.notAfter(t)
	w.waiting = append(w.waiting, waitingClaim{claim: c, process: p})
	w.sendInLine(t, c, w.turn(t, p, c.Key, 0))
}

func (w *walk) ask(t *rapid.T) {
	x := w.drawWaiting(t)
	x.claim.NotAfter = w.notAfter(t)
	w.sendInLine(t, x.claim, w.turn(t, x.process, x.claim.Key, x.number))
}

func (w *walk) askLate(t *rapid.T) {
	s := w.drawSpoken(t)
	s.claim.NotAfter = w.notAfter(t)
	w.sendInLine(t, s.claim, s.turn)
}

func (w *walk) sendInLine(t *rapid.T, c locker.Claim, turn locker.Turn) {
	now := w.h.Now()
	grant, err := w.queue.AcquireInLine(w.ctx, c, turn)
	w.spoke(c, turn, err)
	if !w.stale() {
		w.model.inLine(t, c, turn, true, grant, err, now)
	}
}

// spoke takes in what a caller learned.
func (w *walk) spoke(c locker.Claim, turn locker.Turn, err error) {
	w.said = append(w.said, spoken{c, turn})
	var held *locker.HeldError
	for i := range w.waiting {
		if w.waiting[i].claim.Token != c.Token {
			continue
		}
		switch {
		case errors.As(err, &held) && held.Standing != nil:
			w.waiting[i].number = held.Standing.Number
		case err == nil || errors.Is(err, locker.ErrSpent):
			w.forget(i)
			w.sent = append(w.sent, c)
		}
		return
	}
}

func (w *walk) forget(i int) {
	w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
}

func (w *walk) leave(t *rapid.T) {
	x := w.drawWaiting(t)
	turn := w.turn(t, x.process, x.claim.Key, x.number)
	for i := range w.waiting {
		if w.waiting[i].claim.Token == x.claim.Token {
			w.forget(i)
			break
		}
	}
	w.said = append(w.said, spoken{x.claim, turn})
	w.sendLeave(t, x.claim.Key, turn)
}

func (w *walk) leaveLate(t *rapid.T) {
	s := w.drawSpoken(t)
	w.sendLeave(t, s.claim.Key, s.turn)
}

func (w *walk) sendLeave(t *rapid.T, key locker.Key, turn locker.Turn) {
	now := w.h.Now()
	wantErr(t, "leave", w.queue.Leave(w.ctx, key, turn), nil)
	w.model.leave(key, turn, now)
}

func (w *walk) handOver(t *rapid.T) {
	x := w.drawWaiting(t)
	x.claim.NotAfter = w.notAfter(t)
	turn := w.turn(t, x.process, x.claim.Key, x.number)
	var s locker.Surrender
	for _, c := range w.sent { // the latest of that key, most likely its holder
		if c.Key == x.claim.Key {
			s = surrender(c, 0)
		}
	}
	if s.Key == "" {
		t.Skip("nobody has had that key")
	}
	if rapid.IntRange(0, 3).Draw(t, "minimum hold") == 0 {
		s.Keep = w.span(t, "keep")
	}
	now := w.h.Now()
	verdict, grant, err := w.queue.HandOver(w.ctx, s, x.claim, turn)
	w.spoke(x.claim, turn, err)
	if !w.stale() {
		w.model.handOver(t, s, x.claim, turn, verdict.Err, grant, err, now)
	}
}

func (w *walk) drawWaiting(t *rapid.T) waitingClaim {
	if len(w.waiting) == 0 {
		t.Skip("nobody waits")
	}
	return w.waiting[rapid.IntRange(0, len(w.waiting)-1).Draw(t, "who waits")]
}

func (w *walk) drawSpoken(t *rapid.T) spoken {
	if len(w.said) == 0 {
		t.Skip("nobody has spoken yet")
	}
	return w.said[rapid.IntRange(0, len(w.said)-1).Draw(t, "late call")]
}
