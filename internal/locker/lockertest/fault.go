package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// Op names a method of a backend, or OpHint.
type Op string

const (
	OpAcquire       Op = "acquire"
	OpRenew         Op = "renew"
	OpRelease       Op = "release"
	OpInspect       Op = "inspect"
	OpAnnotate      Op = "annotate"
	OpAcquireInLine Op = "acquire in line"
	OpLeave         Op = "leave"
	OpHandOver      Op = "hand over"
	OpHeal          Op = "heal"
	OpRaise         Op = "raise"
	OpSight         Op = "sight"
	OpBreak         Op = "break"
	OpHint          Op = "hint" // on its way to a listener
)

// Call is what a [Plan] is told of a call.
type Call struct {
	N    int // calls before this one
	Op   Op
	Keys []locker.Key
}

// Fault is what happens to a call. The fields combine; the zero Fault is none.
type Fault struct {
	// Refuse, if not nil, is the answer, and the store never sees the request.
	// It is the plan's choice whether the error is a certain one.
	Refuse error

	// RequestDelay is how long the request travels. It is executed then,
	// whether or not the caller still waits: a delay beyond the caller's
	// deadline is a request that is held back.
	RequestDelay time.Duration

	// LoseReply answers with an unknown outcome once the request has been
	// executed, as a connection does that breaks.
	LoseReply bool

	// ReplyDelay is how long the reply travels.
	ReplyDelay time.Duration

	// Duplicates is how often the request is executed again, each time
	// DuplicateDelay later. Nobody sees the replies.
	Duplicates     int
	DuplicateDelay time.Duration
}

// kinds are what a fault is made of.
func (f Fault) kinds() (all []figures.Row) {
	for kind, is := range map[figures.Row]bool{
		figures.Refused:     f.Refuse != nil,
		figures.RequestLate: f.RequestDelay > 0,
		figures.ReplyLost:   f.LoseReply,
		figures.ReplyLate:   f.ReplyDelay > 0,
		figures.Repeated:    f.Duplicates > 0,
	} {
		if is {
			all = append(all, kind)
		}
	}
	return all
}

// Plan decides each call's fault. It is never called twice at once, so it may
// be a closure over a random source.
type Plan func(Call) Fault
