package lockertest

import (
	"context"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var hintCases = []testCase{
	{"a release wakes the first in line and nobody else", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		var line []*caller
		for _, name := range []string{"a", "b", "c", "d"} {
			line = append(line, crowd.process(t, name).join(t, "k"))
		}
		for i, c := range line {
			h.mustRelease(t, holder)
			c.await(t, locker.HintWake, 1)
			for j, other := range line {
				other.wantWoken(t, min(1, max(0, i-j+1)))
			}
			c.mustGet(t, 0)
			holder = c.claim
		}
		h.mustRelease(t, holder)
		h.mustBeFree(t, "k")
		for _, c := range line {
			c.wantWoken(t, 1)
			for _, hint := range c.heard {
				if hint.Kind != locker.HintListening && hint.Key != "k" {
					t.Errorf("heard a hint for %q", hint.Key)
				}
			}
		}
	}},
	{"neither a verdict of no nor a minimum hold wakes anybody", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		wantErr(t, "release of another's", h.release(t, surrender(h.claim("k", long), 0))[0], locker.ErrTaken)
		wantErr(t, "release", h.release(t, surrender(holder, short/4))[0], nil)
		time.Sleep(short/4 + rounding)
		wantErr(t, "second release", h.release(t, surrender(holder, 0))[0], locker.ErrGone)
		c.wantWoken(t, 0)
		c.mustGet(t, 0)
		other := c.join(t, "k")
		h.mustRelease(t, c.claim)
		c.await(t, locker.HintWake, 1)
		other.mustGet(t, 0)
		c.wantWoken(t, 1)
	}},
	{"a claim that finds the key free and others in line wakes the first of them once", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", short/4)
		a, b := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		time.Sleep(short/4 + rounding)
		for range 3 {
			h.wantNoOvertaking(t, "k", 2)
			b.wantQueued(t, 0, 1, 2)
		}
		a.await(t, locker.HintWake, 1)
		a.mustGet(t, 0)
		h.mustRelease(t, a.claim)
		b.await(t, locker.HintWake, 1)
		b.mustGet(t, 0)
		a.wantWoken(t, 1)
		b.wantWoken(t, 1)
	}},
	{"who moves up to the first two places is told to ask more often", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		var line []*caller
		for i := range 13 {
			line = append(line, crowd.process(t, string(rune('a'+i))).join(t, "k"))
		}
		// Those in front ask every second anyway, and need not be told.
		for _, c := range line[1:10] {
			c.mustLeave(t, 0)
		}
		line[10].await(t, locker.HintNear, 1)
		h.mustRelease(t, holder)
		line[0].mustGet(t, 0)
		line[11].await(t, locker.HintNear, 1)
		line[10].mustLeave(t, 0)
		line[12].await(t, locker.HintNear, 1)
		for i, c := range line {
			most := 1
			if i < 2 {
				most = 0
			}
			if n := c.count(locker.HintNear); n > most {
				t.Errorf("place %d was told %d times to ask more often, want at most %d", i, n, most)
			}
		}
	}},
	{"without any hint the first two ask when the lock expires, and one of them gets it", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		before := h.Now()
		h.take(t, "k", short/2)
		since := h.Now()
		a, b := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		s := a.wantAhead(t, 0, 0, 2).Standing
		if second := b.wantAhead(t, 0, 1, 2).Standing; second.AskIn < short/2-h.Now().Sub(before)-rounding {
			t.Errorf("the second is told to ask in %v, before the lock expires", second.AskIn)
		}
		time.Sleep(s.AskIn)
		for {
			if _, err := a.ask(t, a.turn(a.number, 0)); err == nil {
				break
			}
			if h.Now().Sub(since) > short/2+10*rounding {
				t.Fatalf("the first does not get the lock %v after it has expired", h.Now().Sub(since)-short/2)
			}
			time.Sleep(time.Millisecond)
		}
	}},
	{"without any hint a released lock is had within a second by the first who asks as told", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		s := c.wantAhead(t, 0, 0, 1).Standing
		h.mustRelease(t, holder)
		if s.AskIn > locker.AskEvery {
			t.Errorf("the first is told to ask in %v", s.AskIn)
		}
		time.Sleep(s.AskIn)
		c.mustGet(t, 0)
	}},
	{"those further back are told to ask the more slowly", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", long)
		rate := 0.0 // of all calls together, per second
		const places = 30
		for ahead := range places {
			c := &caller{process: crowd.deaf(string(rune('A' + ahead))), claim: h.claim("k", long)}
			s := c.wantStanding(t, c.turn(0, 0)).Standing
			if s.Ahead != ahead {
				t.Errorf("%d places ahead, want %d", s.Ahead, ahead)
			}
			rate += 1 / s.AskIn.Seconds()
		}
		if rate > 5+3*3.41 { // 5 + 3·ln 30
			t.Errorf("%d places ask %.1f times a second together", places, rate)
		}
	}},
	{"a listener is told first that it listens, and is left alone in the end", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		p := crowd.deaf("p")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan struct{})
		go func() {
			defer close(over)
			crowd.queue.Listen(ctx, p.name, p.hear)
		}()
		p.await(t, locker.HintListening, 1)
		cancel()
		<-over
		heard := len(p.heard)
		holder, _ := h.take(t, "k", long)
		p.join(t, "k")
		h.mustRelease(t, holder)
		if len(p.heard) != heard || p.heard[0].Kind != locker.HintListening {
			t.Errorf("heard %v, of which %d before it stopped listening", p.heard, heard)
		}
	}},
	{"a process that listens anew is woken again", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		p := crowd.deaf("p")
		for round := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				crowd.queue.Listen(ctx, p.name, p.hear)
			}()
			stop := func() { cancel(); <-over }
			p.await(t, locker.HintListening, round+1)
			holder, _ := h.take(t, "k", long)
			c := p.join(t, "k")
			h.mustRelease(t, holder)
			p.await(t, locker.HintWake, round+1)
			c.mustGet(t, 0)
			h.mustRelease(t, c.claim)
			stop()
		}
	}},
}

var queueContextCases = []testCase{
	{"a caller who has left before asking in line is answered promptly, and never with a no that is not one", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		holder, fence := h.take(t, "k", long)
		p := crowd.process(t, "p")
		c := p.join(t, "k")
		since := h.Now()
		_, err := crowd.queue.AcquireInLine(ctx, h.claim("k", long), p.turn(0, 0))
		wantUndecided(t, "acquire in line", err)
		verdict, _, err := crowd.queue.HandOver(ctx, surrender(h.claim("k", long), 0), h.claim("k", long), p.turn(0, 0))
		wantUndecided(t, "verdict of a hand-over", verdict.Err)
		wantUndecided(t, "grant of a hand-over", err)
		wantUndecided(t, "leave", crowd.queue.Leave(ctx, "k", crowd.deaf("nobody").turn(1, 0)))
		crowd.queue.Listen(ctx, "q", p.hear)
		if took := h.Now().Sub(since); took > promptly {
			t.Errorf("the answers took %v", took)
		}
		if again := h.mustAcquire(t, holder); again != fence {
			t.Errorf("fence %d, was %d", again, fence)
		}
		h.mustRelease(t, holder)
		c.mustGet(t, 0)
	}},
}
