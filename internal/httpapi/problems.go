package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// problemTypes is where the codes are described; a type is this and a code.
const problemTypes = "https://github.com/locksidecar/locksidecar/blob/main/docs/problems.md#"

// outcome is one row of the table of all answers that are not a success.
type outcome struct {
	code   string
	status int
	title  string
	is     func(error) bool // which of locker's errors it answers; nil if raised here by its code
}

// outcomes is the one place where errors become status codes. The first row
// that fits counts. A code never changes its meaning.
var outcomes = []outcome{
	{"wait_timeout", http.StatusConflict, "the wait is over and the lock was not free for this caller", held(func(e *locker.HeldError) bool { return e.TimedOut })},
	{"queued", http.StatusConflict, "the lock is free, but others are in line for it", held(func(e *locker.HeldError) bool { return e.Queued })},
	{"held", http.StatusConflict, "the lock is held", as[*locker.HeldError]},
	{"parameter_mismatch", http.StatusConflict, "this owner holds the lock with other parameters", as[*locker.MismatchError]},
	{"owner_busy", http.StatusConflict, "this owner is already asking for the lock", is(locker.ErrOwnerBusy)},
	{"owner_mismatch", http.StatusConflict, "the lock is another worker's", is(locker.ErrOwnerMismatch)},
	{"not_held", http.StatusNotFound, "this sidecar does not hold the lock", is(locker.ErrNotHeld)},
	{"lost", http.StatusGone, "the lock was held and has been lost", as[*locker.LostError]},
	{"key_conflict", http.StatusUnprocessableEntity, "something that is not a lock lives at the key", is(locker.ErrKeyConflict)},
	{"too_many_locks", http.StatusTooManyRequests, "this sidecar holds as many locks as it may", is(locker.ErrTooManyLocks)},
	{"too_many_waiters", http.StatusTooManyRequests, "as many callers wait here as may", is(locker.ErrTooManyWaiters)},
	{"too_many_feeds", http.StatusTooManyRequests, "as many status pages are open as may be live", nil},
	{"unsupported", http.StatusNotImplemented, "this is not supported", is(locker.ErrUnsupported)},
	{"caller_gone", http.StatusBadRequest, "the caller closed its side of the connection before the answer; nothing is held", is(locker.ErrCallerGone)},

	{"shutting_down", http.StatusServiceUnavailable, "this sidecar is shutting down", is(locker.ErrShuttingDown)},
	{"draining", http.StatusServiceUnavailable, "this sidecar was told to refuse new locks", is(locker.ErrDraining)},
	{"not_recorded", http.StatusServiceUnavailable, "this sidecar cannot record it in its state directory, and so did not do it", is(locker.ErrNotRecorded)},
	{"acquire_unresolved", http.StatusServiceUnavailable, "it is not known whether the lock was taken; it is being undone", is(locker.ErrAcquireUnresolved)},
	{"extend_unconfirmed", http.StatusServiceUnavailable, "it is not known whether the lease was extended", is(locker.ErrExtendUnconfirmed)},
	{"release_unconfirmed", http.StatusServiceUnavailable, "the release is not confirmed yet; it is being repeated", as[*locker.UnconfirmedError]},
	{"store_busy", http.StatusServiceUnavailable, "the store is busy", store(locker.StoreBusy)},
	{"store_write_refused", http.StatusServiceUnavailable, "the store refuses writes", store(locker.StoreWriteRefused)},
	{"store_auth_failed", http.StatusServiceUnavailable, "the store refuses our credentials or permissions", store(locker.StoreAuthFailed)},
	{"store_recovering", http.StatusServiceUnavailable, "the store may have lost data a moment ago and grants nothing yet", store(locker.StoreRecovering)},
	{"no_quorum", http.StatusServiceUnavailable, "no majority of the stores agreed", store(locker.StoreNoQuorum)},
	{"not_replicated", http.StatusServiceUnavailable, "too few replicas acknowledged the lock", store(locker.StoreNotReplicated)},
	{"store_error", http.StatusServiceUnavailable, "the store failed", store(locker.StoreFailed)},
	{"store_unavailable", http.StatusServiceUnavailable, "the store cannot be reached", as[*locker.StoreError]},

	{"invalid_key", http.StatusBadRequest, "the key cannot be used", nil},
	{"invalid_key", http.StatusRequestURITooLong, "the key is too long", is(locker.ErrKeyTooLong)},
	{"invalid_ttl", http.StatusBadRequest, "ttl cannot be used", nil},
	{"invalid_wait", http.StatusBadRequest, "wait cannot be used", nil},
	{"invalid_owner", http.StatusBadRequest, "owner cannot be used", nil},
	{"invalid_bind", http.StatusBadRequest, "bind cannot be used", nil},
	{"invalid_renew", http.StatusBadRequest, "renew cannot be used", nil},
	{"invalid_max_hold", http.StatusBadRequest, "max_hold cannot be used", nil},
	{"invalid_min_hold", http.StatusBadRequest, "min_hold cannot be used", nil},
	{"invalid_note", http.StatusBadRequest, "note cannot be used", nil},
	{"invalid_fencing_token", http.StatusBadRequest, "fencing_token cannot be used", nil},
	{"invalid_force", http.StatusBadRequest, "force cannot be used", nil},
	{"invalid_all", http.StatusBadRequest, "all cannot be used", nil},
	{"invalid_parameter", http.StatusBadRequest, "a parameter is unknown, repeated or malformed", nil},
	{"invalid_body", http.StatusBadRequest, "the body cannot be read", nil},
	{"invalid_request", http.StatusBadRequest, "where the request ends is ambiguous", nil},
	{"body_too_large", http.StatusRequestEntityTooLarge, "the body is too large", nil},
	{"unsupported_media_type", http.StatusUnsupportedMediaType, "the body's type is not taken", nil},
	{"unauthorized", http.StatusUnauthorized, "the API token is missing or wrong", nil},
	{"token_unavailable", http.StatusServiceUnavailable, "the API token cannot be read", nil},
	{"forbidden_host", http.StatusForbidden, "this host name is not served", nil},
	{"cross_origin", http.StatusForbidden, "cross-origin browser requests are refused", nil},
	{"not_found", http.StatusNotFound, "there is nothing here", nil},
	{"method_not_allowed", http.StatusMethodNotAllowed, "the resource does not take this method", nil},
	{"internal_error", http.StatusInternalServerError, "a fault in this sidecar", nil}, // also the row of unknown errors
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func held(how func(*locker.HeldError) bool) func(error) bool {
	return func(err error) bool {
		var e *locker.HeldError
		return errors.As(err, &e) && how(e)
	}
}

func store(reason locker.StoreReason) func(error) bool {
	return func(err error) bool {
		var e *locker.StoreError
		return errors.As(err, &e) && e.Reason == reason
	}
}

// refusal is an error that is raised here, by its code.
type refusal struct {
	code, parameter, detail string
	closes                  bool // what else is on the connection cannot be trusted
}

func (e *refusal) Error() string { return e.code + ": " + e.detail }

func refuse(code, detail string) error { return &refusal{code: code, detail: detail} }

func refuseAndClose(code, detail string) error {
	return &refusal{code: code, detail: detail, closes: true}
}

func refuseParam(code, parameter, detail string) error {
	return &refusal{code: code, parameter: parameter, detail: detail}
}

// problem is the answer to an error, as in RFC 9457.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	Parameter string `json:"parameter,omitempty"`

	*occupancy
	HeldHere *bool `json:"held_here,omitempty"`

	FencingToken locker.Fence `json:"fencing_token,omitempty"`
	Cause        locker.Cause `json:"cause,omitempty"`
	LostAt       string       `json:"lost_at,omitempty"`
	FreeWithinMS *int64       `json:"free_within_ms,omitempty"`

	closes bool
}

// problemOf looks the error up in the table and adds what it knows. An error's
// own words reach the caller only if they were written for it.
func problemOf(err error) *problem {
	var refused *refusal
	if !errors.As(err, &refused) {
		refused = new(refusal)
	}
	var invalid *locker.InvalidError
	if errors.As(err, &invalid) {
		refused = &refusal{code: "invalid_" + invalid.Parameter, parameter: invalid.Parameter, detail: invalid.Error()}
	}
	row := outcomes[len(outcomes)-1]
	for _, o := range outcomes {
		if o.code == refused.code || (refused.code == "" && o.is != nil && o.is(err)) {
			row = o
			break
		}
	}
	p := &problem{
		Type: problemTypes + row.code, Title: row.title, Status: row.status, Code: row.code,
		Detail: refused.detail, Parameter: refused.parameter,
		closes: refused.closes || errors.Is(err, locker.ErrCallerGone),
	}
	p.describe(err)
	return p
}

// describe adds what locker's errors carry.
func (p *problem) describe(err error) {
	var (
		held        *locker.HeldError
		lost        *locker.LostError
		unconfirmed *locker.UnconfirmedError
		mismatch    *locker.MismatchError
		absent      *notHeldError
	)
	if errors.As(err, &held) {
		p.occupancy = describeOccupancy(held.Occupancy)
		p.HeldHere = &held.HeldHere
	}
	if errors.As(err, &absent) {
		p.occupancy = describeOccupancy(absent.Occupancy)
	}
	if errors.As(err, &lost) {
		p.Detail = "work done under it since may have overlapped with another's"
		p.FencingToken, p.Cause, p.LostAt = lost.Fence, lost.Cause, timestamp(lost.LostAt)
	}
	if errors.As(err, &unconfirmed) {
		within := (unconfirmed.FreeWithin + time.Millisecond - 1).Milliseconds()
		p.FreeWithinMS = &within
	}
	if errors.Is(err, locker.ErrKeyTooLong) {
		p.Detail = err.Error()
	}
	if errors.As(err, &mismatch) {
		p.Parameter, p.Detail = mismatch.Parameter, mismatch.Error()
	}
}
