package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

const (
	// calmHold is the longest hold of the calm soak.
	calmHold = time.Second
	// calmWait is far longer than any wait there can be.
	calmWait = 2 * time.Minute
)

// arrivals is the reference for the order in which those who wait are served.
// It knows each by the note of its claim.
type arrivals struct {
	t   *testing.T
	now locker.Clock

	mu      sync.Mutex
	waiting map[locker.Key]map[string]*arrival
	served  int
	longest time.Duration // wait
	deepest int           // place in line
}

// arrival is one who waits.
type arrival struct {
	number int64 // 0 until the store has given it one
	since  locker.Instant
	ahead  int // who waited before it then
}

// enter takes in that a caller begins to wait.
func (a *arrivals) enter(r locker.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = make(map[locker.Key]map[string]*arrival)
	}
	if a.waiting[r.Key] == nil {
		a.waiting[r.Key] = make(map[string]*arrival)
	}
	a.waiting[r.Key][r.Note] = new(arrival)
}

// leave takes in that a caller does not count on a grant from now on.
func (a *arrivals) leave(r locker.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting[r.Key], r.Note)
}

// saw takes in the store's answer to a claim, and judges it.
func (a *arrivals) saw(c locker.Claim, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line, now := a.waiting[c.Key], a.now()
	own := line[c.Note]
	var held *locker.HeldError
	switch {
	case err == nil:
		delete(line, c.Note)
		if first := firstOf(line); first != nil && (own == nil || own.number == 0 || first.number < own.number) {
			a.t.Errorf("%q is granted for %q, and number %d has waited for %v", c.Key, c.Note, first.number, now.Sub(first.since))
		}
		if own != nil && own.number != 0 {
			a.judge(c, own, now.Sub(own.since))
		}
	case own == nil || !errors.As(err, &held) || held.Standing == nil:
	case own.number == 0:
		own.number, own.since = held.Standing.Number, now
		for _, other := range line {
			if other.number != 0 && other.number < own.number {
				own.ahead++
			}
		}
	case own.number != held.Standing.Number:
		a.t.Errorf("%q had the number %d for %q and has %d", c.Note, own.number, c.Key, held.Standing.Number)
	}
}

// firstOf returns who has the least number; nil for nobody.
func firstOf(line map[string]*arrival) (first *arrival) {
	for _, other := range line {
		if other.number != 0 && (first == nil || other.number < first.number) {
			first = other
		}
	}
	return first
}

// judge fails the test if a wait was longer than the holds before it.
func (a *arrivals) judge(c locker.Claim, own *arrival, waited time.Duration) {
	a.served++
	a.longest, a.deepest = max(a.longest, waited), max(a.deepest, own.ahead)
	if most := time.Duration(own.ahead+1)*calmHold + time.Millisecond; waited > most {
		a.t.Errorf("%q waited %v for %q behind %d, want %v at most", c.Note, waited, c.Key, own.ahead, most)
	}
}

func TestSoakServesInTheOrderOfArrival(t *testing.T) {
	soakFor(t, 1, func(s *soak, length time.Duration) {
		s.store = memory.New(memory.Config{Now: s.now, Wall: time.Now})
		s.audit = newFenceAudit(t, s.store)
		order := &arrivals{t: t, now: s.now}
		s.audit.seen = order.saw
		end := s.now().Add(length)
		for i := range uint64(soakSlots) {
			at := &slot{soak: s, name: fmt.Sprintf("pod-%d", i), random: s.random(100 + i)}
			s.slots = append(s.slots, at)
			at.begin().faults.SetPlan(nil)
			for j := range uint64(soakWorkers) {
				w := &worker{slot: at, at: at.now(), name: fmt.Sprintf("%s/worker-%d", at.name, j), random: s.random(1000 + 100*i + j)}
				s.running.Go(func() {
					for s.now() < end {
						w.pause(3 * calmHold)
						w.queueUp(order)
					}
				})
			}
		}
		s.running.Wait()
		s.settle()
		s.book.check(s)
		total := s.total()
		handed, _ := s.audit.counts()
		t.Logf("%v: %d calls to the store, %d served in order, %v waited at most, behind %d at most; %d woken, %d polls, %d handed over; outcomes %v",
			length, total.calls, order.served, order.longest, order.deepest, total.woken, total.polled, handed, s.tally.String())
		if order.served == 0 || order.deepest < 2 {
			t.Error("the run shows nothing: no lines")
		}
	})
}

// queueUp takes one lock, mostly by waiting, and gives it back.
func (w *worker) queueUp(order *arrivals) {
	w.asked++
	r := locker.Request{
		Key: soakKeys[w.random.IntN(len(soakKeys))], TTL: w.ttl(), Renew: true,
		Note: fmt.Sprintf("request %d of %s", w.asked, w.name),
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if w.chance(0.8) {
		r.Wait = calmWait
		order.enter(r)
		defer order.leave(r)
		if w.chance(0.2) {
			impatient := time.AfterFunc(w.upTo(3*calmHold), func() {
				order.leave(r)
				leave()
			})
			defer impatient.Stop()
		}
	}
	st, repeated, err := w.at.Acquire(ctx, r)
	outcome := w.outcome(r, repeated, err)
	w.tally.add(outcome)
	if err != nil {
		if outcome == "held" && r.Wait > 0 {
			w.t.Errorf("%s was not served within %v", r.Note, r.Wait)
		}
		return
	}
	w.at.Cleared(st.ID)
	from := w.world.now()
	w.pause(calmHold)
	w.book.holds.Record(lockertest.Hold{Key: r.Key, Holder: w.name, Fence: st.Fence, From: from, Until: w.world.now()})
	if err := w.at.tryRelease(r.Key, st.Fence); err != nil {
		w.t.Errorf("%s: DELETE: %v", w.name, err)
	}
}
