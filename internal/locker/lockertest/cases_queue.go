package lockertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var queueCases = []testCase{
	{"those who wait are served in the order in which they came, whatever their processes", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, last := h.take(t, "k", long)

		var processes []*process
		for i := range 5 {
			processes = append(processes, crowd.process(t, fmt.Sprint("p", i)))
		}
		var callers []*caller
		for _, i := range []int{3, 0, 0, 4, 1, 2, 3, 1, 4, 2, 0, 3, 4, 4, 1} {
			c := processes[i].join(t, "k")
			if n := len(callers); n > 0 && c.number <= callers[n-1].number {
				t.Errorf("number %d after %d", c.number, callers[n-1].number)
			}
			callers = append(callers, c)
		}
		h.mustRelease(t, holder)
		for i, c := range callers {
			left := callers[i:]
			c.await(t, locker.HintWake, 1+count(callers[:i], c.process))
			line := oldest(left)
			for ahead, other := range line[1:] { // though nobody woke them
				other.wantQueued(t, after(left, other), ahead+1, len(line))
			}
			fence := c.mustGet(t, after(left, c))
			if fence <= last {
				t.Errorf("fence %d after %d", fence, last)
			}
			last = fence
			h.mustRelease(t, c.claim)
		}
		for i, p := range processes {
			if want := count(callers, p); p.count(locker.HintWake) != want {
				t.Errorf("process %d was woken %d times for %d grants", i, p.count(locker.HintWake), want)
			}
		}
		h.mustBeFree(t, "k")
	}},
	{"the later callers of a process do not overtake its earlier ones", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		first, second := p.join(t, "k"), p.join(t, "k")
		h.wantLine(t, "k", 1)
		h.mustRelease(t, holder)
		if held := second.wantStanding(t, p.turn(second.number, first.number)); !held.Queued || held.QueueLength != 1 {
			t.Errorf("the second caller is told %+v, want that the key is free and one place is in line", held)
		}
		third := p.join(t, "k")
		first.mustGet(t, second.number)
		h.mustRelease(t, first.claim)
		second.mustGet(t, third.number)
		h.mustRelease(t, second.claim)
		third.mustGet(t, 0)
	}},
	{"a claim that does not wait overtakes nobody", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		a, b := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		if o := h.mustBeHeld(t, "k"); o.QueueLength != 2 {
			t.Errorf("a claim that does not wait is told of %d in line, want 2", o.QueueLength)
		}
		h.wantLine(t, "k", 2)
		h.mustRelease(t, holder)
		h.wantNoOvertaking(t, "k", 2)
		a.mustGet(t, 0)
		h.mustRelease(t, a.claim)
		h.wantNoOvertaking(t, "k", 1)
		b.mustGet(t, 0)
		if o := h.mustBeHeld(t, "k"); o.QueueLength != 0 {
			t.Errorf("a claim that does not wait is told of %d in line, want none", o.QueueLength)
		}
		h.mustRelease(t, b.claim)
		h.mustBeFree(t, "k")
		for _, c := range []*caller{a, b} {
			c.await(t, locker.HintWake, 1)
			c.wantWoken(t, 1)
		}
	}},
	{"a claim that waits and finds the key free is granted at once", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		c := &caller{process: crowd.deaf("p"), claim: h.claim("k", long)}
		since := h.Now()
		fence := c.mustGet(t, 0)
		h.wantLeft(t, "k", long, since)
		h.wantLine(t, "k", 0)
		if again := c.mustGet(t, 0); again != fence {
			t.Errorf("sent again: fence %d, want that of the first grant, %d", again, fence)
		}
		h.wantLine(t, "k", 0)
		h.mustRelease(t, c.claim)
		_, err := c.ask(t, c.turn(0, 0))
		wantErr(t, "sent again after the release", err, locker.ErrSpent)
		h.wantLine(t, "k", 0)
		h.mustBeFree(t, "k")
	}},
	{"the grant of a claim that waits tells what is left of it, also when it is sent again", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		c, turn := h.claim("k", long), crowd.deaf("p").turn(0, 0)
		h.wantToldTwice(t, &c, func() (locker.Grant, error) { return crowd.queue.AcquireInLine(t.Context(), c, turn) })
	}},
	{"a claim that waits is refused for good as one that does not", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		p := crowd.deaf("p")
		late := h.claim("k", long)
		late.NotAfter = h.past()
		_, err := crowd.queue.AcquireInLine(t.Context(), late, p.turn(0, 0))
		wantErr(t, "late", err, locker.ErrLate)

		mad := &caller{process: p, claim: h.claim("k", long)}
		mad.claim.Floor = locker.MaxFence + 1
		_, err = mad.ask(t, p.turn(0, 0))
		var held *locker.HeldError
		if !locker.CertainNo(err) || errors.As(err, &held) {
			t.Errorf("with an implausible floor: %v, want a certain refusal", err)
		}
		h.wantLine(t, "k", 0)
		h.mustBeFree(t, "k")

		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, 0)
		_, err = (&caller{process: p, claim: h.claim("k", long)}).ask(t, p.turn(0, 0))
		wantErr(t, "at a value without TTL", err, locker.ErrKeyConflict)
	}},
	{"a late claim takes no place in a line, and leaves the one that is there", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		a, b := crowd.process(t, "a").join(t, "k"), crowd.deaf("b")
		for _, turn := range []locker.Turn{a.turn(a.number, 0), b.turn(0, 0)} {
			late := h.claim("k", long)
			late.NotAfter = h.past()
			_, err := crowd.queue.AcquireInLine(t.Context(), late, turn)
			if !locker.CertainNo(err) {
				t.Errorf("late: %v, want a certain no", err)
			}
		}
		h.wantLine(t, "k", 1)
		h.mustRelease(t, holder)
		a.mustGet(t, 0)
	}},
	{"a grant leaves the place to the next caller of the process", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p, q := crowd.process(t, "p"), crowd.process(t, "q")
		first, other, second := p.join(t, "k"), q.join(t, "k"), p.join(t, "k")
		h.wantLine(t, "k", 2)
		h.mustRelease(t, holder)
		first.mustGet(t, second.number)
		h.wantLine(t, "k", 2)
		h.mustRelease(t, first.claim)
		other.await(t, locker.HintWake, 1)
		second.wantQueued(t, 0, 1, 2)
		other.mustGet(t, 0)
		h.wantLine(t, "k", 1)
		h.mustRelease(t, other.claim)
		p.await(t, locker.HintWake, 2)
		second.mustGet(t, 0)
		h.wantLine(t, "k", 0)
	}},
	{"lines of other keys are independent", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		a, _ := h.take(t, "a", long)
		h.take(t, "b", long)
		p := crowd.process(t, "p")
		x, y := p.join(t, "a"), p.join(t, "b")
		h.mustRelease(t, a)
		x.mustGet(t, 0)
		h.wantLine(t, "a", 0)
		h.wantLine(t, "b", 1)
		y.mustLeave(t, 0)
		h.wantLine(t, "b", 0)
		h.mustBeOurs(t, x.claim)
	}},
	{"of many who wait at once each is served, in order, and never two at a time", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		const many = 20
		var (
			checker Checker
			mu      sync.Mutex
			served  []int64
			all     sync.WaitGroup
		)
		defer func() {
			crowd.cancel()
			all.Wait()
		}()
		callers := make([]*caller, many)
		errs := make(chan error, many)
		for i := range callers {
			p := crowd.process(t, fmt.Sprint("p", i))
			all.Go(func() {
				c := &caller{process: p, claim: h.claim("k", long)}
				grant, err := c.wait(t)
				if err != nil {
					errs <- err
					return
				}
				end := checker.Begin("k", p.name, grant.Fence, h.Now())
				mu.Lock()
				served = append(served, c.number)
				mu.Unlock()
				end(h.Now())
				if err := h.release(t, surrender(c.claim, 0))[0]; err != nil {
					errs <- err
				}
			})
		}
		deadline := h.Now().Add(promptly)
		for length := 0; length < many && h.Now() < deadline; time.Sleep(time.Millisecond) {
			length = h.mustBeHeld(t, "k").QueueLength
		}
		h.mustRelease(t, holder)
		all.Wait()
		close(errs)
		for err := range errs {
			t.Errorf("%v", err)
		}
		checker.Check(t)
		if len(served) != many {
			t.Fatalf("%d of %d were served", len(served), many)
		}
		for i := range served[1:] {
			if served[i+1] <= served[i] && !h.Splits {
				t.Fatalf("served in the order %v", served)
			}
		}
		h.wantLine(t, "k", 0)
	}},
}

// wait waits as a sidecar with a single caller does, until it is granted, or
// has asked more often than can be right.
func (c *caller) wait(t T) (locker.Grant, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for asks := 1; ; asks++ {
		wakes := c.count(locker.HintWake)
		grant, err := c.ask(t, c.turn(c.number, 0))
		if c.Splits && errors.Is(err, locker.ErrSplitVote) {
			c.claim.Token = locker.NewToken(pod)
			time.Sleep(rand.N(50 * time.Millisecond))
			continue
		}
		var held *locker.HeldError
		if !errors.As(err, &held) {
			return grant, err
		}
		if held.Spent {
			c.claim.Token = locker.NewToken(pod)
		}
		if held.Standing == nil || asks == 100 {
			return grant, err
		}
		c.number = held.Standing.Number
		timer.Reset(max(held.Standing.AskIn, time.Millisecond))
		for due := false; !due && c.count(locker.HintWake) == wakes; {
			select {
			case <-timer.C:
				due = true
			case <-c.more:
			case <-c.ctx.Done():
				return grant, c.ctx.Err()
			}
		}
	}
}

// count returns how many of the callers are the process's.
func count(callers []*caller, p *process) (n int) {
	for _, c := range callers {
		if c.process == p {
			n++
		}
	}
	return n
}

// oldest returns the first caller of each process.
func oldest(callers []*caller) (line []*caller) {
	for i, c := range callers {
		if count(callers[:i], c.process) == 0 {
			line = append(line, c)
		}
	}
	return line
}

// after returns the number of the caller of the same process that comes next
// after c; 0 if none does.
func after(callers []*caller, c *caller) int64 {
	for _, other := range callers {
		if other.process == c.process && other.number > c.number {
			return other.number
		}
	}
	return 0
}
