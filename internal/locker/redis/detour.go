package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// detour says why a call was certainly not carried out where it was sent, and
// what can be done about it.
type detour int

const (
	none      detour = iota
	unreached        // there is no connection to the server
	demoted          // it is a master no more
	moved            // another has the lock, for good
	asked            // another may have the lock; it is to be asked for this once
	later            // it cannot say now: it is loading, or the lock is on its way to another
)

// stray is a call that was not carried out, with the error that it got.
type stray struct {
	call *call
	err  error
	detour
}

// strayOf says what to make of a call that failed. Nothing can be done about
// one that may have been carried out.
func strayOf(c *call, err error) stray {
	s := stray{call: c, err: err}
	var failure *locker.StoreError
	if !errors.As(err, &failure) || !failure.Certain {
		return s
	}
	if text, ok := replyIn(err); ok {
		s.detour = readReply(text).detour
	}
	if s.detour == none && failure.Reason == locker.StoreUnavailable {
		s.detour = unreached
	}
	return s
}

// replyIn returns the error reply of Redis that an error of ours is about.
func replyIn(err error) (text string, ok bool) {
	var reply replyError
	ok = errors.As(err, &reply)
	return string(reply), ok
}

// astray tells whether all of the calls can be sent again.
func astray(strays []stray) bool {
	for _, s := range strays {
		if s.detour == none {
			return false
		}
	}
	return len(strays) > 0
}

// unserved tells whether any of the calls shows that the server may be of no
// use: it has not answered, or not as a master does.
func unserved(strays []stray) bool {
	for _, s := range strays {
		var failure *locker.StoreError
		if s.detour == unreached || s.detour == demoted || errors.As(s.err, &failure) &&
			(failure.Reason == locker.StoreTimeout || failure.Reason == locker.StoreBroken) {
			return true
		}
	}
	return false
}

const (
	// How long to wait before a call is sent again; it grows from the least to
	// the most.
	detourMin = 10 * time.Millisecond
	detourMax = 160 * time.Millisecond

	// detourTime is what must be left of a call's time for that: an attempt that
	// is cut short has an unknown outcome, and this one has a certain one.
	detourTime = 50 * time.Millisecond
)

// waitForChange returns true when changed is closed, or there is a chance that
// it has become better; false if there is no time for another attempt. ctx must
// have a deadline.
func waitForChange(ctx context.Context, changed <-chan struct{}, attempt int) bool {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline) - detourTime
	if left <= 0 {
		return false
	}
	pause := min(detourMin<<min(attempt, 10), detourMax, left)
	timer := time.NewTimer(pause - rand.N(pause/4+1))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil // of several that are ready, any may be chosen
}
