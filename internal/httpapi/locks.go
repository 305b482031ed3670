package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	bindNone       = "none"
	bindConnection = "connection"

	fenceHeader = "Lock-Fencing-Token"
)

// acquire answers POST /locks/{key}.
func (a *api) acquire(w http.ResponseWriter, r *http.Request) error {
	req, err := a.acquireRequest(r)
	if err != nil {
		return err
	}
	if req.Wait > 0 && connOf(r) != nil {
		return a.acquireWaiting(w, r, req)
	}
	got := acquired{bound: req.Bound}
	got.st, got.repeated, got.err = a.Locks.Acquire(r.Context(), req)
	return a.tellAcquired(w, r, got)
}

// tellAcquired answers with the outcome of a request for a lock.
func (a *api) tellAcquired(w http.ResponseWriter, r *http.Request, got acquired) error {
	if got.err != nil {
		return unresolved(got.err)
	}
	if got.bound {
		return a.bind(w, r, got)
	}
	status := http.StatusCreated
	if got.repeated {
		status = http.StatusOK
	}
	return a.deliver(w, r, got.st, func() error {
		w.Header().Set(fenceHeader, strconv.FormatInt(int64(got.st.Fence), 10))
		return respond(w, r, status, describeGrant(got.st))
	})
}

// acquireRequest reads what is asked for.
func (a *api) acquireRequest(r *http.Request) (locker.Request, error) {
	key, err := keyOf(r)
	if err != nil {
		return locker.Request{}, err
	}
	in := newInput(r, paramTTL, paramWait, paramOwner, paramBind, paramRenew, paramMaxHold, paramMinHold, paramNote)
	req := locker.Request{
		Key:     key,
		Owner:   in.owner(),
		TTL:     in.duration(paramTTL, a.DefaultTTL, leastTTL, a.MaxTTL),
		Wait:    in.duration(paramWait, 0, 0, a.MaxWait),
		Renew:   in.flag(paramRenew, true),
		MaxHold: in.duration(paramMaxHold, a.DefaultMaxHold, 0, longestHold),
		MinHold: in.duration(paramMinHold, 0, 0, a.MaxTTL),
		Note:    in.text(paramNote, noteMaxLen),
		Given:   make([]locker.Parameter, len(in.params)),
	}
	bind := in.word(paramBind, bindNone, bindConnection)
	if bind == bindConnection && !req.Renew {
		in.invalid(paramBind, "connection keeps the lock renewed; leave renew out")
	}
	if req.Owner != "" && slices.Contains(a.Reserved, req.Owner) {
		in.invalid(paramOwner, "is this pod's own name, which all its workers share; name one worker")
	}
	if in.err != nil {
		return locker.Request{}, in.err
	}
	req.Bound = bind == bindConnection
	for i, p := range in.params {
		req.Given[i] = locker.Parameter(p.name)
	}
	return req, nil
}

// unresolved makes sure that a claim with an unknown outcome is told as such,
// whatever the store's trouble was.
func unresolved(err error) error {
	var store *locker.StoreError
	if errors.As(err, &store) && !store.Certain && !errors.Is(err, locker.ErrAcquireUnresolved) {
		return fmt.Errorf("%w: %v", locker.ErrAcquireUnresolved, err)
	}
	return err
}

// get answers GET and HEAD /locks/{key}.
func (a *api) get(w http.ResponseWriter, r *http.Request) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	in := newInput(r, paramFence, paramOwner)
	handle := in.handle()
	if in.err != nil {
		return in.err
	}
	st, err := a.Locks.Get(key, handle)
	if err != nil {
		return a.withOccupancy(r, key, err)
	}
	if prefers(r, typeEvents, typeJSON) && r.Method == http.MethodGet {
		return a.getEvents(w, r, st)
	}
	w.Header().Set(fenceHeader, strconv.FormatInt(int64(st.Fence), 10))
	return respond(w, r, http.StatusOK, describeHolding(st))
}

// extend answers PATCH /locks/{key}. Like a release, it is carried out even if
// its caller does not wait for the answer.
func (a *api) extend(w http.ResponseWriter, r *http.Request) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	in := newInput(r, paramTTL, paramMaxHold, paramNote, paramFence, paramOwner)
	handle := in.handle()
	var changes locker.Changes
	if ttl := in.duration(paramTTL, 0, leastTTL, a.MaxTTL); in.given(paramTTL) {
		changes.TTL = &ttl
	}
	if maxHold := in.duration(paramMaxHold, 0, 0, longestHold); in.given(paramMaxHold) {
		changes.MaxHold = &maxHold
	}
	if note := in.text(paramNote, noteMaxLen); in.given(paramNote) {
		changes.Note = &note
	}
	if in.err != nil {
		return in.err
	}
	st, err := a.Locks.Extend(context.WithoutCancel(r.Context()), key, handle, changes)
	if err != nil {
		return a.withOccupancy(r, key, err)
	}
	w.Header().Set(fenceHeader, strconv.FormatInt(int64(st.Fence), 10))
	return respond(w, r, http.StatusOK, describeHolding(st))
}

// release answers DELETE /locks/{key}.
func (a *api) release(w http.ResponseWriter, r *http.Request) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	in := newInput(r, paramFence, paramOwner, paramMinHold, paramForce)
	handle := in.handle()
	options := locker.ReleaseOptions{Force: in.flag(paramForce, false), SkipMinHold: in.given(paramMinHold)}
	if in.duration(paramMinHold, 0, 0, time.Duration(1<<63-1)) != 0 {
		in.invalid(paramMinHold, "can only be 0 here: it frees the lock at once")
	}
	if in.err != nil {
		return in.err
	}
	if err := a.Locks.Release(context.WithoutCancel(r.Context()), key, handle, options); err != nil {
		return a.withOccupancy(r, key, err)
	}
	respondEmpty(w, http.StatusNoContent)
	return nil
}

// notHeldError is locker.ErrNotHeld with who has the key instead.
type notHeldError struct{ locker.Occupancy }

func (e *notHeldError) Error() string { return locker.ErrNotHeld.Error() }

func (e *notHeldError) Unwrap() error { return locker.ErrNotHeld }

// withOccupancy adds to a "not held" who has the key instead. That the store
// cannot tell is no error: this sidecar does not hold the lock either way.
func (a *api) withOccupancy(r *http.Request, key locker.Key, err error) error {
	if !errors.Is(err, locker.ErrNotHeld) {
		return err
	}
	o, inspectErr := a.Locks.Inspect(r.Context(), key)
	if inspectErr != nil {
		a.Log.Debug("the store could not tell who has the key", "key", string(key), "err", inspectErr)
		o = locker.Occupancy{State: locker.OccupancyUnknown}
	}
	return &notHeldError{o}
}
