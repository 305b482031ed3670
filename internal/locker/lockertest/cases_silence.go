package lockertest

import (
	"fmt"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// silenceCases are about places whose processes have died, hang or are cut
// off.
var silenceCases = []testCase{
	{"heads for whom nobody listens are passed over in the step that wakes", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		for i := range 10 {
			crowd.deaf(fmt.Sprint("dead", i)).join(t, "k")
		}
		c := crowd.process(t, "alive").join(t, "k")
		h.mustRelease(t, holder)
		c.await(t, locker.HintWake, 1)
		h.wantLine(t, "k", 1)
		h.wantNoOvertaking(t, "k", 1)
		c.mustGet(t, 0)
	}},
	{"a line in which nobody listens holds nobody up", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		c, _ := h.take(t, "a", long)
		crowd.deaf("dead").join(t, "a")
		h.mustRelease(t, c)
		h.mustBeFree(t, "a")

		h.take(t, "b", short/4)
		crowd.deaf("dead").join(t, "b")
		time.Sleep(short/4 + rounding)
		h.mustBeFree(t, "b")

		h.take(t, "c", short/4)
		crowd.deaf("dead").join(t, "c")
		alive := crowd.deaf("alive").join(t, "c")
		time.Sleep(short/4 + rounding)
		alive.mustGet(t, 0)
		h.wantLine(t, "c", 0)
	}},
	{"a head that was woken and says nothing is passed over when the next asks as told", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		crowd.process(t, "silent").join(t, "k")
		c := crowd.process(t, "alive").join(t, "k")
		h.mustRelease(t, holder)
		s := c.wantQueued(t, 0, 1, 2)
		time.Sleep(s.AskIn + rounding)
		c.mustGet(t, 0)
		h.wantLine(t, "k", 0)

		// From then on one at a time is woken again.
		line := []*caller{crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k"), crowd.process(t, "c").join(t, "k")}
		for _, next := range line {
			h.mustRelease(t, c.claim)
			next.await(t, locker.HintWake, 1)
			next.mustGet(t, 0)
			c = next
		}
		for _, next := range line {
			next.wantWoken(t, 1)
		}
	}},
	{"a head that was woken and says nothing gets no more time by being woken again", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		first := crowd.deaf("first").join(t, "k")
		silent := crowd.process(t, "silent").join(t, "k")
		h.mustRelease(t, holder) // drops the first, for whom nobody listens
		silent.await(t, locker.HintWake, 1)
		time.Sleep(locker.DeadAfter / 2)
		first.mustGet(t, 0)
		h.mustRelease(t, first.claim)
		silent.await(t, locker.HintWake, 2)
		time.Sleep(locker.DeadAfter/2 + 2*rounding)
		h.mustBeFree(t, "k")
	}},
	{"a place that was woken and asks in time stays, though it does not get the key", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		first := crowd.deaf("first").join(t, "k")
		second := crowd.process(t, "second").join(t, "k")
		h.mustRelease(t, holder)
		second.await(t, locker.HintWake, 1)
		first.mustGet(t, 0)
		second.wantAhead(t, 0, 0, 1)
		time.Sleep(locker.DeadAfter + 2*rounding)
		h.wantLine(t, "k", 1)
		h.mustRelease(t, first.claim)
		h.wantNoOvertaking(t, "k", 1)
		second.mustGet(t, 0)
	}},
	{"the dead behind heads for whom nobody listens are passed over with them", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		crowd.deaf("deaf").join(t, "k")
		dead := crowd.process(t, "dead")
		dead.joinFor(t, "k", short/4)
		c := crowd.process(t, "alive").join(t, "k")
		time.Sleep(short/4 + rounding)
		h.mustRelease(t, holder)
		c.await(t, locker.HintWake, 1)
		c.mustGet(t, 0)
		dead.wantWoken(t, 0)
	}},
	{"ten heads that were woken and say nothing hold nobody up for longer than three seconds", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		for i := range 10 {
			crowd.process(t, fmt.Sprint("silent", i)).join(t, "k")
		}
		c := crowd.process(t, "alive").join(t, "k")
		h.mustRelease(t, holder)
		const poll = 20 * time.Millisecond
		since := h.Now()
		for took := time.Duration(0); took < 4*time.Second; took = h.Now().Sub(since) {
			if c.count(locker.HintWake) == 0 {
				// Others find the line instead of the caller, who has promised no
				// more than to ask after three seconds.
				h.tryAndGiveBack(t, "k")
			} else if _, err := c.ask(t, c.turn(c.number, 0)); err == nil {
				if took > 3*time.Second+h.slack() {
					t.Errorf("the eleventh was served after %v", took)
				}
				return
			}
			time.Sleep(poll)
		}
		t.Errorf("the eleventh was not served in four seconds, and woken %d times", c.count(locker.HintWake))
	}},
	{"a place that has not asked as promised is passed over", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		const hold = locker.AskEvery + locker.DeadAfter + 2*locker.AskEvery/5
		since := h.Now()
		h.take(t, "k", hold)
		until := h.Now().Add(hold)
		crowd.process(t, "silent").join(t, "k")
		c := crowd.process(t, "alive").join(t, "k")
		for h.Now().Sub(since) < hold-locker.AskEvery/4 {
			c.wantStanding(t, c.turn(c.number, 0))
			time.Sleep(locker.AskEvery / 4)
		}
		time.Sleep(until.Sub(h.Now()) + rounding)
		c.mustGet(t, 0)
		h.wantLine(t, "k", 0)
	}},
	{"places whose wait is over are passed over, all at once", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		var dead []*process
		for _, name := range []string{"a", "b", "c"} {
			p := crowd.process(t, name)
			p.joinFor(t, "k", short/4)
			dead = append(dead, p)
		}
		c := crowd.process(t, "alive").join(t, "k")
		time.Sleep(short/4 + rounding)
		h.wantLine(t, "k", 1)
		c.wantAhead(t, 0, 0, 1)
		h.mustRelease(t, holder)
		c.await(t, locker.HintWake, 1)
		c.mustGet(t, 0)
		for _, p := range dead {
			p.wantWoken(t, 0)
		}
	}},
	{"a place waits as long as the most patient caller of the process", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		c := p.join(t, "k")
		p.joinFor(t, "k", short/4)
		time.Sleep(short/4 + rounding)
		h.wantLine(t, "k", 1)
		h.mustRelease(t, holder)
		h.wantNoOvertaking(t, "k", 1)
		c.mustGet(t, 0)
	}},
	{"a place that was dropped comes back with its number", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		first := crowd.deaf("first").join(t, "k")
		second := crowd.process(t, "second").join(t, "k")
		third := crowd.process(t, "third").join(t, "k")
		h.mustRelease(t, holder) // drops the first, for whom nobody listens
		second.mustGet(t, 0)
		h.wantLine(t, "k", 1)
		first.listen(t)
		first.wantAhead(t, 0, 0, 2)
		third.wantAhead(t, 0, 1, 2)
		h.mustRelease(t, second.claim)
		first.await(t, locker.HintWake, 1)
		third.wantQueued(t, 0, 1, 2)
		first.mustGet(t, 0)
		h.mustRelease(t, first.claim)
		third.mustGet(t, 0)
	}},
	{"a place that was dropped is served with its number if the key is free", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		first := crowd.deaf("first").join(t, "k")
		second := crowd.process(t, "second").join(t, "k")
		h.mustRelease(t, holder)
		second.await(t, locker.HintWake, 1)
		first.mustGet(t, 0)
		second.wantAhead(t, 0, 0, 1)
	}},
	{"numbers go on from those that callers bring after a loss of all data", func(t T, h Harness) {
		need(t, "Wipe", h.Wipe != nil)
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", long)
		a, b := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		h.Wipe()
		h.take(t, "k", long)
		b.wantAhead(t, 0, 0, 1)
		if c := crowd.process(t, "c").join(t, "k"); c.number <= b.number {
			t.Errorf("number %d after %d", c.number, b.number)
		}
		a.wantAhead(t, 0, 0, 3)
	}},
	{"a line of which nobody speaks any more disappears by itself", func(t T, h Harness) {
		need(t, "LineTTL", h.LineTTL != nil)
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", long)
		if left := h.LineTTL("k"); left != 0 {
			t.Errorf("before anybody waits something of the line is kept for %v", left)
		}
		p := crowd.process(t, "p")
		p.joinFor(t, "k", short)
		p.joinFor(t, "k", short)
		crowd.deaf("dead").joinFor(t, "k", short)
		left := h.LineTTL("k")
		if left <= 0 || left > long {
			t.Fatalf("the line is kept for %v, want some time below %v", left, long)
		}
		if h.bubble {
			time.Sleep(left + rounding)
			if left := h.LineTTL("k"); left != 0 {
				t.Errorf("after that something of the line is kept for %v", left)
			}
		}
	}},
}

// slack is how much later than it could something may be noticed.
func (h Harness) slack() time.Duration {
	if h.bubble {
		return 100 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// tryAndGiveBack asks for the key once, and does not keep it.
func (h Harness) tryAndGiveBack(t T, key locker.Key) {
	t.Helper()
	c := h.claim(key, long)
	if _, err := h.acquire(t, c); err == nil {
		h.mustRelease(t, c)
	}
}
