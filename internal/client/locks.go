package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Request says how a lock is wanted. What is nil or empty is left to the
// sidecar's defaults.
type Request struct {
	TTL, Wait        *time.Duration
	MaxHold, MinHold *time.Duration
	Owner, Note      string
	NoRenew          bool // not with Bind
}

// Parameters returns what the API is sent.
func (r Request) Parameters() url.Values {
	v := make(url.Values)
	setDuration(v, "ttl", r.TTL)
	setDuration(v, "wait", r.Wait)
	setDuration(v, "max_hold", r.MaxHold)
	setDuration(v, "min_hold", r.MinHold)
	setText(v, "owner", r.Owner)
	setText(v, "note", r.Note)
	if r.NoRenew {
		v.Set("renew", "false")
	}
	return v
}

// waits tells whether the answer may come long after the request was sent.
func (r Request) waits() bool { return r.Wait != nil && *r.Wait != 0 }

// Handle names one grant of a lock: by its fencing token, its owner, or both.
// The zero Handle stands for whatever the sidecar holds.
type Handle struct {
	Fence int64
	Owner string
}

func (h Handle) parameters() url.Values {
	v := make(url.Values)
	if h.Fence != 0 {
		v.Set("fencing_token", strconv.FormatInt(h.Fence, 10))
	}
	setText(v, "owner", h.Owner)
	return v
}

// Grant is a lock that the sidecar holds for us.
type Grant struct {
	Key          string    `json:"key"`
	State        string    `json:"state"` // held or at_risk
	Owner        string    `json:"owner"`
	Note         string    `json:"note"`
	FencingToken int64     `json:"fencing_token"`
	AcquiredAt   time.Time `json:"acquired_at"`
	TTLMS        int64     `json:"ttl_ms"`
	Renew        bool      `json:"renew"`
	Bind         string    `json:"bind"`
	MaxHoldMS    int64     `json:"max_hold_ms"` // 0 for none
	MinHoldMS    int64     `json:"min_hold_ms"`
	Acked        int       `json:"acked_replicas"` // 0 where they are not waited for
	HeldForMS    int64     `json:"held_for_ms"`    // these two in what Get and Extend return
	Renewals     int       `json:"renewals"`
	Validity

	// ValidUntil is the end of what the answer promises, on the clock of
	// [Client.Now]. It does not move when the sidecar renews the lock.
	ValidUntil locker.Instant `json:"-"`

	Repeated bool            `json:"-"` // the same owner held it already
	Raw      json.RawMessage `json:"-"` // the answer as it came
}

// Validity is how long a lease is valid, as the sidecar tells it.
type Validity struct {
	ValidForMS           int64 `json:"valid_for_ms"`            // when it was told
	ValidUntilBoottimeMS int64 `json:"valid_until_boottime_ms"` // on the boot-time clock of the sidecar's machine
}

// validUntil places the end of a validity on our clock. base is an instant at
// which the sidecar had not told it yet, or, where the answer took as long as
// somebody else's lock, the one at which it was read: then a delay on the way
// from another machine goes unseen, but not one on this machine.
func (c *Client) validUntil(v Validity, base locker.Instant) locker.Instant {
	until := base.Add(time.Duration(v.ValidForMS) * time.Millisecond)
	if c.here && v.ValidUntilBoottimeMS > 0 {
		until = min(until, locker.Instant(v.ValidUntilBoottimeMS*int64(time.Millisecond)))
	}
	return until
}

func (c *Client) grant(a answer, waited bool) (Grant, error) {
	var g Grant
	if err := c.decode(a, &g); err != nil {
		return Grant{}, err
	}
	base := a.sent
	if waited {
		base = c.clock()
	}
	g.Raw, g.Repeated, g.ValidUntil = a.body, a.status == http.StatusOK, c.validUntil(g.Validity, base)
	return g, nil
}

// Acquire takes a lock. If it returns an error because ctx is over, the lock
// is not held: the sidecar gives back what nobody has heard of.
func (c *Client) Acquire(ctx context.Context, key string, r Request) (Grant, error) {
	a, err := c.do(ctx, http.MethodPost, lockPath(key), r.Parameters())
	if err != nil {
		return Grant{}, err
	}
	return c.grant(a, r.waits())
}

// Get tells how a lock is doing that the sidecar holds.
func (c *Client) Get(ctx context.Context, key string, h Handle) (Grant, error) {
	a, err := c.do(ctx, http.MethodGet, lockPath(key), h.parameters())
	if err != nil {
		return Grant{}, err
	}
	return c.grant(a, false)
}

// Changes are what can be changed of a lock that is held; nil leaves a thing
// as it is.
type Changes struct {
	TTL, MaxHold *time.Duration
	Note         *string
}

// Extend begins the lease anew and changes what is to be changed.
func (c *Client) Extend(ctx context.Context, key string, h Handle, changes Changes) (Grant, error) {
	v := h.parameters()
	setDuration(v, "ttl", changes.TTL)
	setDuration(v, "max_hold", changes.MaxHold)
	if changes.Note != nil {
		v.Set("note", *changes.Note)
	}
	a, err := c.do(ctx, http.MethodPatch, lockPath(key), v)
	if err != nil {
		return Grant{}, err
	}
	return c.grant(a, false)
}

// ReleaseOptions say how a lock is given back.
type ReleaseOptions struct {
	Force   bool // whatever its owner
	FreeNow bool // even if its minimum hold is not over
}

// Release gives a lock back.
func (c *Client) Release(ctx context.Context, key string, h Handle, o ReleaseOptions) error {
	v := h.parameters()
	if o.Force {
		v.Set("force", "true")
	}
	if o.FreeNow {
		v.Set("min_hold", "0")
	}
	_, err := c.do(ctx, http.MethodDelete, lockPath(key), v)
	return err
}

func lockPath(key string) string { return "/locks/" + key }

func setText(v url.Values, name, text string) {
	if text != "" {
		v.Set(name, text)
	}
}

func setDuration(v url.Values, name string, d *time.Duration) {
	if d != nil {
		v.Set(name, d.String())
	}
}
