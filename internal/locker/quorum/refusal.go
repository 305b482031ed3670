package quorum

import (
	"cmp"
	"errors"
	"slices"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// refusalLocked is the answer to a claim that gets no majority.
func (v *vote) refusalLocked(t result) error {
	need, spentToken := v.b.need, v.spendsLocked()
	if at := v.heldByOneLocked(); len(at) >= need {
		return v.heldLocked(at, spentToken)
	}
	switch {
	case t.is[spent] > 0:
		return locker.ErrSpent
	case t.is[conflict] >= need:
		return v.firstLocked(conflict)
	case t.is[queued] >= need:
		return v.heldLocked(v.atLocked(queued), spentToken)
	case t.is[late] >= need && !spentToken:
		return v.firstLocked(late)
	}
	failure := &locker.StoreError{Reason: locker.StoreNoQuorum, Certain: true, Spent: spentToken, Err: v.whyLocked()}
	switch {
	case t.is[recovering] >= need:
		failure.Reason = locker.StoreRecovering
	case t.is[yes]+t.is[held]+t.is[queued] >= need:
		failure.Err = locker.ErrSplitVote
	default:
		if reason, ok := v.commonLocked(); ok {
			failure.Reason = reason
		}
	}
	return failure
}

// unresolvedLocked is the answer to a claim of which it is not known whether it
// gets a majority.
func (v *vote) unresolvedLocked() error {
	return &locker.StoreError{Reason: locker.StoreNoQuorum, Err: v.whyLocked()}
}

// spendsLocked tells whether some member may have the token, or come to have
// it: it is taken back then, and not to be used again.
func (v *vote) spendsLocked() bool {
	for i := range v.seats {
		if v.mayBeAtLocked(i) {
			return true
		}
	}
	return false
}

func (v *vote) atLocked(want state) (at []int) {
	for i, s := range v.seats {
		if s.state == want {
			at = append(at, i)
		}
	}
	return at
}

// heldByOneLocked returns the members at which one and the same lock is, of the
// lock that is at the most.
func (v *vote) heldByOneLocked() (most []int) {
	where := make(map[uint64][]int)
	for _, i := range v.atLocked(held) {
		mark := v.seats[i].held.Mark
		where[mark] = append(where[mark], i)
		if len(where[mark]) > len(most) {
			most = where[mark]
		}
	}
	return most
}

// heldLocked puts together what the given members say of who has the key. All
// that have a place for the caller say where it stands.
func (v *vote) heldLocked(at []int, spentToken bool) *locker.HeldError {
	told := make([]locker.Occupancy, len(at))
	for i, seat := range at {
		told[i] = v.seats[seat].held.Occupancy
	}
	h := &locker.HeldError{Occupancy: together(told, v.b.need), Queued: v.seats[at[0]].held.Queued, Spent: spentToken}
	for _, s := range v.seats {
		if s.held == nil {
			continue
		}
		h.QueueLength = max(h.QueueLength, s.held.QueueLength)
		stands := s.held.Standing
		if stands == nil {
			continue
		}
		if h.Standing == nil {
			first := *stands
			h.Standing = &first
			continue
		}
		h.Standing.Number = max(h.Standing.Number, stands.Number)
		h.Standing.Ahead = max(h.Standing.Ahead, stands.Ahead)
		h.Standing.AskIn = min(h.Standing.AskIn, stands.AskIn)
	}
	return h
}

func (v *vote) firstLocked(s state) error { return v.seats[v.atLocked(s)[0]].err }

// whyLocked gathers why members have failed, for the log.
func (v *vote) whyLocked() error {
	var errs []error
	for i, s := range v.seats {
		switch {
		case s.state == asked:
			errs = append(errs, &memberError{v.b.nodes[i].name, errors.New("no answer yet")})
		case s.err != nil && s.held == nil:
			errs = append(errs, &memberError{v.b.nodes[i].name, s.err})
		}
	}
	return errors.Join(errs...)
}

type memberError struct {
	name string
	err  error
}

func (e *memberError) Error() string { return e.name + ": " + e.err.Error() }

// commonLocked returns the reason for which a majority of members refuses, if it
// is one that says more than that they do not agree.
func (v *vote) commonLocked() (locker.StoreReason, bool) {
	telling := []locker.StoreReason{locker.StoreWriteRefused, locker.StoreAuthFailed, locker.StoreBusy, locker.StoreFailed}
	counts := make(map[locker.StoreReason]int)
	for _, s := range v.seats {
		var store *locker.StoreError
		if s.state == failed && errors.As(s.err, &store) {
			counts[store.Reason]++
			if counts[store.Reason] >= v.b.need && slices.Contains(telling, store.Reason) {
				return store.Reason, true
			}
		}
	}
	return "", false
}

// together is what members that say the same of a key amount to. It is what a
// majority says until so few are left of them that they are none.
func together(told []locker.Occupancy, need int) locker.Occupancy {
	slices.SortFunc(told, func(a, b locker.Occupancy) int { return cmp.Compare(b.ExpiresIn, a.ExpiresIn) })
	o := told[min(need, len(told))-1]
	for _, other := range told {
		o.QueueLength = max(o.QueueLength, other.QueueLength)
		if h := other.Holder; h != nil && !h.Since.IsZero() && (o.Holder == nil || o.Holder.Since.IsZero() || h.Since.Before(o.Holder.Since)) {
			o.Holder = h
		}
	}
	return o
}
