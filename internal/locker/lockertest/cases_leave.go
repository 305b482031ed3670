package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var leaveCases = []testCase{
	{"who leaves is no longer in line", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p, q := crowd.process(t, "p"), crowd.process(t, "q")
		first, second := p.join(t, "k"), q.join(t, "k")
		first.mustLeave(t, 0)
		first.mustLeave(t, 0)
		second.wantAhead(t, 0, 0, 1)
		h.mustRelease(t, holder)
		second.await(t, locker.HintWake, 1)
		second.mustLeave(t, 0)
		h.mustBeFree(t, "k")
		p.wantWoken(t, 0)
	}},
	{"who leaves after it was woken passes the waking on", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		a, b, c := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k"), crowd.process(t, "c").join(t, "k")
		h.mustRelease(t, holder)
		a.await(t, locker.HintWake, 1)
		a.mustLeave(t, 0)
		b.await(t, locker.HintWake, 1)
		b.mustLeave(t, 0)
		c.await(t, locker.HintWake, 1)
		c.mustGet(t, 0)
		a.wantWoken(t, 1)
		b.wantWoken(t, 1)
	}},
	{"who leaves after it was woken has the next caller of its process woken", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		first, second := p.join(t, "k"), p.join(t, "k")
		h.mustRelease(t, holder)
		p.await(t, locker.HintWake, 1)
		first.mustLeave(t, second.number)
		p.await(t, locker.HintWake, 2)
		second.mustGet(t, 0)
	}},
	{"who leaves has the next woken if the head has said nothing since it was", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		silent := crowd.process(t, "silent").join(t, "k")
		b, c := crowd.process(t, "b").join(t, "k"), crowd.process(t, "c").join(t, "k")
		h.mustRelease(t, holder)
		silent.await(t, locker.HintWake, 1)
		time.Sleep(locker.DeadAfter + 2*rounding)
		b.mustLeave(t, 0)
		c.await(t, locker.HintWake, 1)
		c.mustGet(t, 0)
	}},
	{"who leaves gives the place to the next caller of the process", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p, q := crowd.process(t, "p"), crowd.process(t, "q")
		first, other, second := p.join(t, "k"), q.join(t, "k"), p.join(t, "k")
		first.mustLeave(t, second.number)
		h.wantLine(t, "k", 2)
		h.mustRelease(t, holder)
		other.await(t, locker.HintWake, 1)
		second.wantQueued(t, 0, 1, 2)
		other.mustGet(t, 0)
		h.mustRelease(t, other.claim)
		p.await(t, locker.HintWake, 1)
		second.mustGet(t, 0)
		p.wantWoken(t, 1)
	}},
	{"a later caller of a process who leaves does not take its place along", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		first, second := p.join(t, "k"), p.join(t, "k")
		second.mustLeave(t, 0)
		h.wantLine(t, "k", 1)
		h.mustRelease(t, holder)
		p.await(t, locker.HintWake, 1)
		first.mustGet(t, 0)
	}},
	{"a process can leave whatever its number is", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p, q := crowd.process(t, "p"), crowd.process(t, "q").join(t, "k")
		p.join(t, "k")
		c := p.join(t, "k")
		c.sendLeave(t, p.turn(0, 0))
		q.wantAhead(t, 0, 0, 1)
		h.mustRelease(t, holder)
		q.mustGet(t, 0)
		c.sendLeave(t, p.turn(0, 0))
		h.mustBeOurs(t, q.claim)
	}},
	{"a leave that comes late removes no newer place", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		first := p.join(t, "k")
		stale, late, whoever := p.turn(first.number, 0), p.turn(first.number, 0), p.turn(0, 0)
		second := p.join(t, "k")
		first.wantStanding(t, stale)
		first.sendLeave(t, late)
		first.sendLeave(t, whoever)
		h.wantLine(t, "k", 1)
		first.mustLeave(t, second.number)
		first.sendLeave(t, p.turn(first.number, 0)) // the place is the second's
		h.wantLine(t, "k", 1)
		h.mustRelease(t, holder)
		p.await(t, locker.HintWake, 1)
		second.mustGet(t, 0)
		h.wantLine(t, "k", 0)
	}},
	{"an ask that is executed after its caller has left holds nobody up for good", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		gone := p.join(t, "k")
		late := p.turn(gone.number, 0)
		gone.mustLeave(t, 0)
		gone.wantStanding(t, late)
		other := crowd.process(t, "q").join(t, "k")
		c := p.join(t, "k")
		h.mustRelease(t, holder)
		p.await(t, locker.HintWake, 1) // it stands where the one who left stood
		if ahead := c.wantStanding(t, p.turn(c.number, 0)).Standing.Ahead; ahead != 1 {
			t.Errorf("the caller is told of %d places ahead, want that of the other process", ahead)
		}
		other.await(t, locker.HintWake, 1)
		other.mustGet(t, 0)
		h.mustRelease(t, other.claim)
		c.mustGet(t, 0)
		h.wantLine(t, "k", 0)
	}},
	{"an ask that is executed after a later one does not bring back the place of who has left", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		gone := p.join(t, "k")
		other, c := crowd.process(t, "q").join(t, "k"), p.join(t, "k")
		late := p.turn(gone.number, c.number)
		gone.mustLeave(t, c.number)
		gone.wantStanding(t, late)
		other.wantAhead(t, 0, 0, 2)
		h.mustRelease(t, holder)
		other.await(t, locker.HintWake, 1)
		other.mustGet(t, 0)
	}},
}
