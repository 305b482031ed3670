package lockertest

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// History is what callers of one key were answered, and when: requests that do not
// wait, for locks that nothing but a release ends meanwhile. Its zero value is ready;
// it is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	events   []porcupine.Operation
	asked    int
	answered int
	granted  int
}

// Outcome is what an answer says.
type Outcome int

const (
	Done        Outcome = iota // it is granted, or given back
	Refused                    // somebody else holds it; or it was not held any more
	Unknown                    // it may have been carried out, or may yet be
	NothingDone                // it was not carried out, and will not be
)

// asking is a request for the lock, or to give back what one has got.
type asking struct {
	id      int // of the request for the lock
	release bool
}

type answering struct {
	outcome Outcome
	fence   locker.Fence
}

// Ask takes in that the lock is asked for; told, that this was answered. The number
// stands for the request.
func (h *History) Ask(now locker.Instant) (number int, told func(now locker.Instant, outcome Outcome, fence locker.Fence)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	number = h.asked
	return number, func(end locker.Instant, outcome Outcome, fence locker.Fence) {
		h.add(asking{id: number}, now, end, answering{outcome, fence})
	}
}

// GiveBack takes in that what a request has got is given back; told, that this
// was answered.
func (h *History) GiveBack(number int, now locker.Instant) (told func(now locker.Instant, outcome Outcome)) {
	return func(end locker.Instant, outcome Outcome) {
		h.add(asking{id: number, release: true}, now, end, answering{outcome: outcome})
	}
}

// add writes a request down. One whose outcome is not known may be carried out at
// any time, and what it has got is given back at any time after that. One that was
// not carried out may have kept others off while it was on its way.
func (h *History) add(a asking, from, until locker.Instant, o answering) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered++
	if !a.release && o.outcome == Done {
		h.granted++
	}
	write := func(a asking, call, end int64) {
		h.events = append(h.events, porcupine.Operation{Input: a, Output: o, Call: call, Return: end})
	}
	// What begins in the same instant in which another ends is at the same time;
	// in between there is room for what comes of it.
	const room = 4
	call, end := room*int64(from), room*int64(until)+room-1
	after := asking{id: a.id, release: true}
	switch {
	case o.outcome == Unknown:
		write(a, call, math.MaxInt64)
		if !a.release {
			write(after, call, math.MaxInt64)
		}
	case o.outcome != NothingDone:
		write(a, call, end)
	case !a.release:
		write(a, call, end-2)
		write(after, end-1, end)
	}
}

// state is a lock: the request that holds it, 0 for none, and its last token.
type state struct {
	holder int
	fence  locker.Fence
}

// oneLock is a lock that is one: granted to one request at a time, with rising
// fencing tokens, refused only while it is held, and free once it is given back.
var oneLock = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(was, input, output any) []any {
		s, a, o := was.(state), input.(asking), output.(answering)
		open := o.outcome == Unknown || o.outcome == NothingDone // the answer says nothing of the lock
		after := s
		switch {
		case a.release:
			if !open && (s.holder == a.id) != (o.outcome == Done) {
				return nil
			}
			if s.holder == a.id {
				after.holder = 0
			}
			return []any{after}
		case o.outcome == Refused:
			if s.holder == 0 {
				return nil
			}
			return []any{s}
		case s.holder == 0 && (open || o.fence > s.fence):
			after.holder, after.fence = a.id, max(s.fence, o.fence)
			if open { // or it comes to nothing
				return []any{s, after}
			}
			return []any{after}
		case open:
			return []any{s}
		}
		return nil
	},
}).ToModel()

// Linearizable tells whether one lock can have given these answers, each at some
// moment between its request and its arrival. It gives up after the time given;
// decided is false then.
func (h *History) Linearizable(within time.Duration) (yes, decided bool) {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	result := porcupine.CheckOperationsTimeout(oneLock, events, within)
	return result == porcupine.Ok, result != porcupine.Unknown
}

// Len returns how many requests were answered.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered
}

// Granted returns how many of them were granted the lock.
func (h *History) Granted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.granted
}
