package locker

import (
	"errors"
	"fmt"
	"time"
)

// A backend's certain answers.
var (
	ErrTaken       = errors.New("another token is at the key")
	ErrGone        = errors.New("the key is gone")
	ErrLate        = errors.New("the request reached the store after its time was over")
	ErrSpent       = errors.New("the claim was granted before and that grant is over")
	ErrKeyConflict = errors.New("something that is not a lock lives at the key")

	// ErrSplitVote is why a StoreError of StoreNoQuorum may not last: several
	// have asked at the same time, and none has got a majority.
	ErrSplitVote = errors.New("the stores granted it to several who asked at the same time, and to none by a majority")
)

// HeldError is the certain answer that a claim was not granted because the
// key is not free for it.
type HeldError struct {
	Occupancy
	Queued   bool // free, but others are in line before us
	HeldHere bool // by this very sidecar
	TimedOut bool // the caller has waited as long as it wanted to

	// Spent claims must not be sent again: a part of the store had granted it,
	// or may yet, and that is being taken back.
	Spent bool

	// Standing is where a claim that waits stands in line; nil for a claim
	// that does not wait.
	Standing *Standing
}

func (e *HeldError) Error() string {
	if e.Queued {
		return "others are in line for the lock"
	}
	return "the lock is held"
}

// StoreReason says in one word why a store did not answer with a yes or a no.
type StoreReason string

// The reasons. Each is also a label value of a metric, so the set is closed.
const (
	StoreUnavailable   StoreReason = "unavailable"   // not reached, loading, not the master, cluster down
	StoreTimeout       StoreReason = "timeout"       // no answer in time
	StoreBroken        StoreReason = "broken"        // the connection ended, or the answer could not be read
	StoreBusy          StoreReason = "busy"          // busy with somebody's long script, or our own queue is full
	StoreWriteRefused  StoreReason = "write_refused" // out of memory, cannot persist, too few replicas
	StoreAuthFailed    StoreReason = "auth_failed"   // credentials or permissions
	StoreRecovering    StoreReason = "recovering"    // may have lost data a moment ago
	StoreNoQuorum      StoreReason = "no_quorum"
	StoreNotReplicated StoreReason = "not_replicated"
	StoreFailed        StoreReason = "error" // anything else
)

// StoreReasons lists every StoreReason.
var StoreReasons = []StoreReason{
	StoreUnavailable, StoreTimeout, StoreBroken, StoreBusy, StoreWriteRefused,
	StoreAuthFailed, StoreRecovering, StoreNoQuorum, StoreNotReplicated, StoreFailed,
}

// StoreError is a backend's failure to say yes or no.
type StoreError struct {
	Reason  StoreReason
	Certain bool  // nothing was done and nothing will be done later
	Spent   bool  // if Certain: as that of a HeldError
	Err     error // the driver's own words: for the log only
}

func (e *StoreError) Error() string {
	if e.Err == nil {
		return "store: " + string(e.Reason)
	}
	return fmt.Sprintf("store: %s: %v", e.Reason, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

// CertainNo tells whether err says for certain that the request was not, and
// will not be, carried out.
func CertainNo(err error) bool {
	var held *HeldError
	if errors.As(err, &held) {
		return true
	}
	for _, certain := range []error{ErrTaken, ErrGone, ErrLate, ErrSpent, ErrKeyConflict, ErrNotRecorded} {
		if errors.Is(err, certain) {
			return true
		}
	}
	var store *StoreError
	return errors.As(err, &store) && store.Certain
}

// spent tells whether err says that the claim must not be sent again.
func spent(err error) bool {
	var held *HeldError
	var store *StoreError
	switch {
	case errors.As(err, &held):
		return held.Spent
	case errors.As(err, &store):
		return store.Spent
	}
	return errors.Is(err, ErrSpent)
}

// The Locker's own answers.
var (
	ErrNotHeld        = errors.New("this sidecar does not hold the lock")
	ErrOwnerMismatch  = errors.New("the lock is another worker's")
	ErrOwnerBusy      = errors.New("this owner is already asking for the lock")
	ErrTooManyLocks   = errors.New("this sidecar holds as many locks as it may")
	ErrTooManyWaiters = errors.New("as many callers wait here as may")
	ErrShuttingDown   = errors.New("this sidecar is shutting down")
	ErrDraining       = errors.New("this sidecar was told to refuse new locks")
	ErrCallerGone     = errors.New("the caller went away")
	ErrUnsupported    = errors.New("the backend does not support this")

	// ErrNotRecorded: the journal does not take a record that must be there
	// first, so nothing was sent.
	ErrNotRecorded = errors.New("this sidecar cannot record the lock, and so did not ask for it")

	// ErrAcquireUnresolved: the lock may have been taken; it is being undone.
	ErrAcquireUnresolved = errors.New("it is not known whether the lock was taken; it is being undone")

	// ErrExtendUnconfirmed: the extension may or may not have happened; the
	// lease counts as the shorter of the two.
	ErrExtendUnconfirmed = errors.New("it is not known whether the lease was extended")
)

// MismatchError says which parameter of a repeated request differs from the
// grant's.
type MismatchError struct{ Parameter string }

func (e *MismatchError) Error() string {
	return "the lock is held by this owner with another " + e.Parameter
}

// InvalidError says which parameter cannot be used, and why.
type InvalidError struct {
	Parameter string
	Problem   string
}

func (e *InvalidError) Error() string { return e.Parameter + ": " + e.Problem }

// Cause says how a grant was lost.
type Cause string

const (
	CauseExpired  Cause = "expired"  // not renewed in time by our clock
	CauseTaken    Cause = "taken"    // another's token is at the key
	CauseGone     Cause = "gone"     // the key vanished: flush, eviction, failover
	CauseMaxHold  Cause = "max_hold" // held as long as it may be
	CauseShutdown Cause = "shutdown"
	CauseRevoked  Cause = "revoked"
)

// Causes lists every Cause.
var Causes = []Cause{CauseExpired, CauseTaken, CauseGone, CauseMaxHold, CauseShutdown, CauseRevoked}

// LostError says that a grant was ours and was lost.
type LostError struct {
	Fence  Fence
	Cause  Cause
	LostAt time.Time // wall clock, for people
}

func (e *LostError) Error() string { return "the lock was lost: " + string(e.Cause) }

// UnconfirmedError says that a release has not been confirmed yet. The lock is
// not renewed any more and its release is being repeated.
type UnconfirmedError struct {
	FreeWithin time.Duration // free by then at the latest
}

func (e *UnconfirmedError) Error() string { return "the release has not been confirmed yet" }
