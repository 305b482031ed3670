package quorum

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// seat is what one member has said.
type seat struct {
	state     state
	fence     locker.Fence      // that it has recorded, if it said yes
	left      time.Duration     // that it keeps the key, likewise
	held      *locker.HeldError // if it is held, or queued for
	err       error
	raising   bool // its fence is being raised
	overtakes bool // it is asked to grant the key in spite of its line
}

type patience int

const (
	notYet patience = iota
	waiting
	waited
)

type state int

const (
	asked      state = iota // and has not answered yet
	yes                     // it has the token, and its record of the fence
	held                    // another has it there
	queued                  // it is free there, and others are first in line
	spent                   // it was granted there before, and that is over
	late                    // it came too late
	conflict                // something that is not a lock is there
	recovering              // it may have lost its data, and grants nothing yet
	failed                  // it certainly has not granted it for another reason
	unknown                 // it may have granted it, or may yet
)

// saysNo tells whether the member has certainly not granted it this time.
func (s state) saysNo() bool { return s != asked && s != yes && s != unknown }

// lacks tells whether the member has said that it does not have the token.
func (s state) lacks() bool { return s == held || s == queued || s == spent || s == recovering }

func stateOf(err error) (s state, h *locker.HeldError) {
	var store *locker.StoreError
	switch {
	case err == nil:
		return yes, nil
	case errors.As(err, &h) && h.Queued:
		return queued, h
	case h != nil:
		return held, h
	case errors.Is(err, locker.ErrSpent):
		return spent, nil
	case errors.Is(err, locker.ErrLate):
		return late, nil
	case errors.Is(err, locker.ErrKeyConflict):
		return conflict, nil
	case !locker.CertainNo(err):
		return unknown, nil
	case errors.As(err, &store) && store.Reason == locker.StoreRecovering:
		return recovering, nil
	}
	return failed, nil
}
