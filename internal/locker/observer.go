package locker

import "time"

// Observer is told what happens, for metrics. Its methods are called under
// the table's mutex: they must be quick and must not call the Locker.
type Observer interface {
	Acquired(result AcquireResult, waited time.Duration)
	Released(result ReleaseResult, held time.Duration)
	Lost(cause Cause, held time.Duration)
	// Renewed is told of each renewal; slack is the validity that was left when
	// the answer came. Verified is told of each look at a lock that is not
	// extended: it ends when it ends, and has no slack.
	Renewed(result RenewResult, slack time.Duration)
	Verified(result RenewResult)
	// Orphan is told of a value without TTL, or with one longer than anybody
	// may ask for, at a lock's key.
	Orphan()
	// WokenUp is told of each wake-up for somebody who waits here, Polled of
	// each request to the store made for such a one without a wake-up, and
	// HandedOver of the time from a wake-up, or a release here, to the grant.
	WokenUp()
	Polled()
	HandedOver(took time.Duration)
	// ClockStep is told of a jump of the store's clock.
	ClockStep(step time.Duration)
}

// AcquireResult, ReleaseResult and RenewResult are label values of metrics.
type (
	AcquireResult string
	ReleaseResult string
	RenewResult   string
)

const (
	AcquireGranted    AcquireResult = "granted"
	AcquireRepeated   AcquireResult = "repeated" // the owner's own grant, told again
	AcquireHeld       AcquireResult = "held"
	AcquireTimedOut   AcquireResult = "wait_timeout"
	AcquireConflict   AcquireResult = "key_conflict"
	AcquireRefused    AcquireResult = "refused" // by a limit, or draining, or owner_busy
	AcquireFailed     AcquireResult = "store_error"
	AcquireUnresolved AcquireResult = "unresolved"
	AcquireCallerGone AcquireResult = "caller_gone"

	ReleaseDone        ReleaseResult = "released"
	ReleaseUnbound     ReleaseResult = "unbound"    // the connection that it was bound to has ended
	ReleaseGivenBack   ReleaseResult = "given_back" // the caller had gone
	ReleaseNotOurs     ReleaseResult = "not_ours"   // found lost at the release
	ReleaseUnconfirmed ReleaseResult = "unconfirmed"
	ReleaseDropped     ReleaseResult = "dropped" // at shutdown

	RenewOK     RenewResult = "ok"
	RenewFailed RenewResult = "failed" // outcome unknown or store in trouble; tried again
	RenewLost   RenewResult = "lost"
)

// AcquireResults, ReleaseResults and RenewResults list every value.
var (
	AcquireResults = []AcquireResult{AcquireGranted, AcquireRepeated, AcquireHeld, AcquireTimedOut, AcquireConflict, AcquireRefused, AcquireFailed, AcquireUnresolved, AcquireCallerGone}
	ReleaseResults = []ReleaseResult{ReleaseDone, ReleaseUnbound, ReleaseGivenBack, ReleaseNotOurs, ReleaseUnconfirmed, ReleaseDropped}
	RenewResults   = []RenewResult{RenewOK, RenewFailed, RenewLost}
)

// Silent is an Observer that is told nothing.
type Silent struct{}

func (Silent) Acquired(AcquireResult, time.Duration) {}
func (Silent) Released(ReleaseResult, time.Duration) {}
func (Silent) Lost(Cause, time.Duration)             {}
func (Silent) Renewed(RenewResult, time.Duration)    {}
func (Silent) Verified(RenewResult)                  {}
func (Silent) Orphan()                               {}
func (Silent) ClockStep(time.Duration)               {}
func (Silent) WokenUp()                              {}
func (Silent) Polled()                               {}
func (Silent) HandedOver(time.Duration)              {}
