package locker

import (
	"context"
	"time"
)

// Fence is a fencing token: a number that grows from grant to grant of a key.
// It fits a JSON number exactly (below 2^53).
type Fence int64

// MaxFence is the greatest fencing token that is taken for real.
const MaxFence Fence = 1<<53 - 1

// Claim asks a backend for one lock. A claim may be sent any number of times;
// it is granted at most once.
type Claim struct {
	Key    Key
	Token  Token
	Holder string // label of this process, for people
	Note   string // for people

	// Keep is how long the store keeps the key if nobody extends it, at least
	// a millisecond. It is the TTL, or the minimum hold where that is longer.
	Keep time.Duration

	// Floor is the least fencing token that may be granted; 0 sets none. A
	// store that has lost its data would otherwise begin anew.
	Floor Fence

	// NotAfter is when the store must refuse to execute the claim, since
	// nobody is waiting for it any more.
	NotAfter Instant

	// Overtake grants the key though others are in line for it: of several
	// stores each may have somebody else at the head of its line.
	Overtake bool
}

// Renewal asks a backend to extend, or only to verify, one held lock.
type Renewal struct {
	Key   Key
	Token Token

	// Keep is how long the store keeps the key from now on; 0 verifies that
	// the lock is ours and extends nothing.
	Keep time.Duration

	// NotAfter is when the store must refuse to execute the renewal.
	NotAfter Instant

	// Fence and Note are the grant's, for a backend that consists of several
	// stores and puts the lock back where one has lost it.
	Fence Fence
	Note  string
}

// Surrender asks a backend to give one lock back.
type Surrender struct {
	Key    Key
	Token  Token
	Holder string

	// Keep, if above 0, leaves the key taken by nobody (a tombstone) for that
	// long: the rest of a minimum hold.
	Keep time.Duration

	// Quiet wakes nobody who waits for the key: others have it elsewhere.
	Quiet bool
}

// Reading is what an answer tells of the store's own clock.
type Reading struct {
	// UnixMicro is the store's wall clock, or 0 where the answer had none. It
	// is used as a source of rising numbers and never compared with our clock.
	UnixMicro int64

	// Step is by how much the store's clock was seen to jump against elapsed
	// time since the answer before; 0 if it did not.
	Step time.Duration
}

// Grant is a backend's yes to a claim.
type Grant struct {
	Fence Fence

	// Left is how long the store keeps the key, counted from the execution of
	// the very request that is answered: all of the claim's Keep if that
	// granted it, and what remains if the claim had been granted before.
	Left time.Duration

	// Acked is how many replicas have acknowledged it; 0 where that is not
	// waited for.
	Acked int

	Reading
}

// Verdict is a backend's answer on one of many locks: nil for yes,
// [ErrTaken], [ErrGone] or [ErrLate] for a certain no, any other error for
// unknown unless it is a [StoreError] that is Certain.
type Verdict struct {
	Err error
	Reading
}

// Backend decides who owns a key. Every answer is a yes, a no or unknown;
// unknown means that it may have happened or may yet happen, until the
// request's NotAfter has passed. All methods are safe for concurrent use,
// return soon after ctx is over, and can be repeated with the same token
// without harm. A backend keeps no record of locks.
type Backend interface {
	// Acquire grants the claim if the key is free, or if it is this very
	// claim's already. The outcomes:
	//
	//   - nil: granted, with the fence of the (first) grant and what is left
	//     of it.
	//   - *HeldError: somebody else has it, or nobody may have it yet. If it is
	//     Spent, the claim must not be sent again.
	//   - ErrKeyConflict: something that is not a lock lives at the key.
	//   - ErrSpent: this claim was granted before and that grant is over.
	//   - ErrLate: NotAfter had passed; nothing was done.
	//   - *StoreError with Certain: nothing was taken and nothing will be. If it
	//     is Spent, the claim must not be sent again; if it is ErrSplitVote, a
	//     new claim may succeed a moment later.
	//   - any other error: unknown.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Renew answers each renewal: nil, ErrTaken (another token is there),
	// ErrGone (the key is not there), ErrLate, else unknown. It never creates
	// a key.
	Renew(ctx context.Context, renewals []Renewal) []Verdict

	// Release answers each surrender: nil, ErrTaken or ErrGone (it was not
	// ours any more and nothing was changed), else unknown.
	Release(ctx context.Context, surrenders []Surrender) []Verdict
}

// Inspector is a backend that can tell who has a key.
type Inspector interface {
	// Inspect describes the key, or fails; it changes nothing.
	Inspect(ctx context.Context, key Key) (Occupancy, error)
}

// Annotator is a backend that shows notes to people elsewhere.
type Annotator interface {
	// Annotate replaces the note of a lock that is ours; the verdict is as
	// for Renew.
	Annotate(ctx context.Context, key Key, token Token, note string) error
}

// Occupancy says who has a key, as far as the store tells.
type Occupancy struct {
	State       OccupancyState
	Holder      *Holder // only for values that this product wrote
	ExpiresIn   time.Duration
	QueueLength int

	// Mark is the same at two stores if the very same lock is at both; 0 if none
	// is. It is never shown: see [MarkOf].
	Mark uint64
}

// OccupancyState is one of the words that an Occupancy can have.
type OccupancyState string

const (
	OccupancyHeld    OccupancyState = "held"
	OccupancyFree    OccupancyState = "free"
	OccupancyMinHold OccupancyState = "min_hold" // released early; kept taken until its minimum hold is over
	OccupancyBroken  OccupancyState = "broken"   // taken away from its holder; kept taken until the lease would have ended
	OccupancyUnknown OccupancyState = "unknown"
)

// Holder is what people may know of who holds a lock.
type Holder struct {
	Pod   string
	Since time.Time // on the store's clock; zero if not known
	Note  string
}
