package locker

import (
	"context"
	"time"
)

// Queue is a backend that keeps those who wait for a key in their order of
// arrival. One process has one place for a key, however many of its callers
// wait: the place has the arrival number of the oldest of them.
//
// A backend with a Queue lets no try-once claim overtake: while there is a
// living place in line, [Backend.Acquire] answers a free key with a HeldError
// that is Queued.
type Queue interface {
	// AcquireInLine is Acquire for a caller who waits. If the claim cannot be
	// granted now, it takes its place in line, or keeps it, and the answer is
	// a *HeldError with a Standing. A grant gives the place to t.Rest, or up.
	// A place that was dropped by mistake comes back with its number.
	//
	// The place has the number that the process's latest call gives it: the
	// lesser of t.Number and t.Rest. A call without a number, or one that is
	// executed after a later one, leaves an earlier place where it is. So an
	// ask that comes when its caller has left holds nobody up for good.
	AcquireInLine(ctx context.Context, c Claim, t Turn) (Grant, error)

	// Leave takes the caller with t.Number out of line; t.Rest keeps the
	// place. If the key is free by then, the first in line is woken. A number
	// of 0 stands for whatever number the place has. Nothing is changed if
	// another caller has the place, or if a later call has spoken for it.
	Leave(ctx context.Context, key Key, t Turn) error

	// HandOver gives a lock back and grants it, in one step, to the next
	// caller of the same process, if nobody elsewhere is ahead of that one and
	// no minimum hold is left. The verdict is as for Release. The grant is as
	// for AcquireInLine, and certainly refused if the verdict is a certain no.
	// Both are for one key. Sent again after it was carried out, it says so
	// again.
	HandOver(ctx context.Context, s Surrender, c Claim, t Turn) (Verdict, Grant, error)

	// Listen tells what the store has to say to a process until ctx is over;
	// it connects again by itself. hear must not block. Hints may be lost or
	// come twice: they save time, and nothing else rests on them.
	Listen(ctx context.Context, process string, hear func(Hint))
}

// Turn says who waits.
type Turn struct {
	Process  string        // no other process has the same
	Number   int64         // the caller's arrival number; 0 asks for one
	Rest     int64         // the least number of the process's other callers; 0 for none
	Call     int64         // rises with every call of the process for this key
	WaitLeft time.Duration // the process waits no longer than this, unless it says so again
}

// Standing is where a caller stands in line.
type Standing struct {
	Number int64         // its arrival number
	Ahead  int           // places before its own
	AskIn  time.Duration // ask again after this, if no hint comes before
}

// Hint is a word of the store to a process that waits.
type Hint struct {
	Kind HintKind
	Key  Key // unset for HintListening
}

// HintKind says what a Hint means.
type HintKind int

const (
	HintWake      HintKind = iota // the key is free and it is our turn
	HintNear                      // our place is among the first: ask every second from now on
	HintListening                 // hints are heard from now on; earlier ones may have been missed
)

const (
	// AskEvery is how often the first places in line ask for the key without
	// a hint.
	AskEvery = time.Second
	// DeadAfter is how long a place may be silent after it was woken, or
	// after it should have asked, before it is dropped from the line.
	DeadAfter = time.Second
)

// AskIn is when a place should ask again without a hint: the first two at the
// holder's expiry and every second, those behind the more slowly the further
// back they are, so that W places cost the store no more than 5 + 3·ln W calls
// a second together.
func AskIn(ahead int, expiresIn time.Duration) time.Duration {
	if ahead < 2 {
		return min(AskEvery, max(expiresIn+time.Millisecond, time.Millisecond))
	}
	return max(AskEvery, time.Duration(ahead)*AskEvery/3)
}
