package metrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

type storeOp string

const (
	opAcquire       storeOp = "acquire"
	opAcquireInLine storeOp = "acquire_in_line"
	opRenew         storeOp = "renew"
	opRelease       storeOp = "release"
	opHandOver      storeOp = "hand_over"
	opLeave         storeOp = "leave"
	opInspect       storeOp = "inspect"
	opAnnotate      storeOp = "annotate"
)

var storeOps = []storeOp{
	opAcquire, opAcquireInLine, opRenew, opRelease, opHandOver, opLeave, opInspect, opAnnotate,
}

// storeOutcome is what is known after a call. Of several answers it is the
// worst.
type storeOutcome string

const (
	outcomeYes     storeOutcome = "yes"
	outcomeNo      storeOutcome = "no"
	outcomeFailed  storeOutcome = "failed"  // the store refused or was not reached: certainly not done
	outcomeUnknown storeOutcome = "unknown" // may have happened or may yet happen
)

// storeOutcomes is in order from best to worst.
var storeOutcomes = []storeOutcome{outcomeYes, outcomeNo, outcomeFailed, outcomeUnknown}

// storeCall is what the calls of one series have in common.
type storeCall struct {
	op      storeOp
	outcome storeOutcome
}

// called counts one call, with all its answers. Each reason counts once: a lost
// connection is one error, however many locks were in the batch.
func (m *Metrics) called(op storeOp, start time.Time, answers ...error) {
	took := time.Since(start).Seconds()
	worst := 0
	var reasons []locker.StoreReason
	for _, err := range answers {
		outcome, reason := classify(err)
		worst = max(worst, slices.Index(storeOutcomes, outcome))
		if reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
			m.storeErrors.WithLabelValues(string(reason)).Inc()
		}
	}
	m.storeDurations[storeCall{op, storeOutcomes[worst]}].Observe(took)
}

// classify tells what err leaves known and, if the store is to blame, why.
func classify(err error) (storeOutcome, locker.StoreReason) {
	if err == nil {
		return outcomeYes, ""
	}
	var store *locker.StoreError
	switch {
	case errors.As(err, &store) && store.Certain:
		return outcomeFailed, store.Reason
	case store != nil:
		return outcomeUnknown, store.Reason
	case locker.CertainNo(err):
		return outcomeNo, ""
	case errors.Is(err, context.Canceled):
		return outcomeUnknown, "" // we gave up, the store did nothing wrong
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeUnknown, locker.StoreTimeout
	}
	return outcomeUnknown, locker.StoreFailed
}
