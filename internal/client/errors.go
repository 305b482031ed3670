package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrStreamEnded says that a stream is over. The lock is not held under it any
// more, whatever came before.
var ErrStreamEnded = errors.New("the stream of events has ended")

// UnreachableError says that no sidecar has answered.
type UnreachableError struct {
	URL   string // where it was asked
	Asked bool   // the request may have been carried out; false if it certainly was not
	Err   error
}

func (e *UnreachableError) Error() string {
	if e.Asked {
		return fmt.Sprintf("no answer from the sidecar at %s: %v", e.URL, e.Err)
	}
	return fmt.Sprintf("no sidecar at %s: %v", e.URL, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// TokenError says why the token file cannot be used. It holds nothing of it.
type TokenError struct{ Err error }

func (e *TokenError) Error() string { return "the API token: " + e.Err.Error() }

func (e *TokenError) Unwrap() error { return e.Err }

// RefusedError is an answer that is not a success: a problem of
// docs/problems.md. Fields that the answer does not have are zero.
type RefusedError struct {
	Status    int    `json:"-"`
	Code      string `json:"code"` // empty if what answered is no locksidecar
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Parameter string `json:"parameter"`

	Occupancy
	HeldHere bool `json:"held_here"` // by the very sidecar that was asked

	FencingToken int64     `json:"fencing_token"` // of the grant that was lost
	Cause        string    `json:"cause"`
	LostAt       time.Time `json:"lost_at"`
	FreeWithinMS *int64    `json:"free_within_ms"` // of a release that is not confirmed

	Raw json.RawMessage `json:"-"` // the answer as it came; nil if it was no problem
}

// Occupancy says who has a key, as far as the sidecar told.
type Occupancy struct {
	State       string  `json:"state"` // held, free, min_hold or unknown
	Holder      *Holder `json:"holder"`
	ExpiresInMS *int64  `json:"expires_in_ms"`
	QueueLength *int    `json:"queue_length"`
}

// Holder is what people may know of who holds a lock.
type Holder struct {
	Pod   string     `json:"pod"`
	Since *time.Time `json:"since"`
	Note  string     `json:"note"`
}

func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("what answers there is no locksidecar: it says %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Detail == "" {
		return e.Title
	}
	return e.Title + ": " + e.Detail
}

// refused reads the problem of an answer that is not a success.
func refused(res *http.Response, body []byte) error {
	e := &RefusedError{Status: res.StatusCode}
	if !hasType(res, typeProblem) || json.Unmarshal(body, e) != nil || e.Code == "" {
		return &RefusedError{Status: res.StatusCode}
	}
	e.Raw = body
	return e
}
