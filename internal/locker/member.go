package locker

import (
	"context"
	"time"
)

// Member is a backend that can be one of several which decide by majority; see
// package quorum. That a store may have lost data is the member's to notice:
// for as long as locks may still be relied on that it has forgotten, it answers
// every claim with a [StoreError] of StoreRecovering that is Certain, and
// renews, releases, heals and raises as always.
type Member interface {
	Backend
	Inspector
	Annotator
	Queue
	Healer
	Raiser
}

// Remedy asks a backend to put back one lock that it has lost, or never had,
// while a majority of other backends still has it.
type Remedy struct {
	Key   Key
	Token Token
	Fence Fence         // of the grant
	Note  string        // for people
	Keep  time.Duration // how long the store keeps the key from now on

	// NotAfter is when the store must refuse to execute the remedy: the lock
	// may be over by then.
	NotAfter Instant
}

// Healer is a backend that can put back what it has lost. Only who knows from
// elsewhere that the lock is held may ask for that.
type Healer interface {
	// Heal answers each remedy: nil if the lock is there now, or was already,
	// in which case its time is left alone; ErrTaken (another value is there),
	// ErrLate, else unknown. The last fencing token of the key becomes the
	// remedy's, unless it is greater already. A key with others in line for it
	// is healed like any other.
	Heal(ctx context.Context, remedies []Remedy) []Verdict
}

// Raising asks a backend to raise the fencing token of one held lock.
type Raising struct {
	Key      Key
	Token    Token
	Fence    Fence
	NotAfter Instant // the store must refuse to execute it later
}

// Raiser is a backend that can raise the fencing token of a lock.
type Raiser interface {
	// Raise makes the fencing token of a lock that is ours no less than the one
	// given, and returns what it is then: later grants of the key are above it,
	// and the claim sent again gets it. The errors: ErrTaken, ErrGone, ErrLate,
	// a *StoreError that is Certain (nothing was changed), else unknown.
	Raise(ctx context.Context, r Raising) (Fence, error)
}
