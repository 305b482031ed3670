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
	opAcquire  storeOp = "acquire"
	opRenew    storeOp = "renew"
	opRelease  storeOp = "release"
	opInspect  storeOp = "inspect"
	opAnnotate storeOp = "annotate"
)

var storeOps = []storeOp{opAcquire, opRenew, opRelease, opInspect, opAnnotate}

// storeOutcome is what is known after a call. Of a batch it is the worst.
type storeOutcome string

const (
	outcomeYes     storeOutcome = "yes"
	outcomeNo      storeOutcome = "no"
	outcomeFailed  storeOutcome = "failed"  // the store refused or was not reached: certainly not done
	outcomeUnknown storeOutcome = "unknown" // may have happened or may yet happen
)

// storeOutcomes is in order from best to worst.
var storeOutcomes = []storeOutcome{outcomeYes, outcomeNo, outcomeFailed, outcomeUnknown}

// Backend returns inner, measured. It can do exactly what inner can do:
// callers ask a backend for its abilities by asserting its type.
func (m *Metrics) Backend(inner locker.Backend) locker.Backend {
	b := &backend{inner, m}
	inspect, inspects := inner.(locker.Inspector)
	annotate, annotates := inner.(locker.Annotator)
	switch {
	case inspects && annotates:
		return struct {
			*backend
			inspector
			annotator
		}{b, inspector{inspect, m}, annotator{annotate, m}}
	case inspects:
		return struct {
			*backend
			inspector
		}{b, inspector{inspect, m}}
	case annotates:
		return struct {
			*backend
			annotator
		}{b, annotator{annotate, m}}
	}
	return b
}

type backend struct {
	inner locker.Backend
	m     *Metrics
}

func (b *backend) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	start := time.Now()
	grant, err := b.inner.Acquire(ctx, c)
	b.m.called(opAcquire, start, err)
	return grant, err
}

func (b *backend) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	start := time.Now()
	verdicts := b.inner.Renew(ctx, renewals)
	b.m.calledBatch(opRenew, start, verdicts)
	return verdicts
}

func (b *backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	start := time.Now()
	verdicts := b.inner.Release(ctx, surrenders)
	b.m.calledBatch(opRelease, start, verdicts)
	return verdicts
}

type inspector struct {
	inner locker.Inspector
	m     *Metrics
}

func (i inspector) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	start := time.Now()
	occupancy, err := i.inner.Inspect(ctx, key)
	i.m.called(opInspect, start, err)
	return occupancy, err
}

type annotator struct {
	inner locker.Annotator
	m     *Metrics
}

func (a annotator) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	start := time.Now()
	err := a.inner.Annotate(ctx, key, token, note)
	a.m.called(opAnnotate, start, err)
	return err
}

func (m *Metrics) called(op storeOp, start time.Time, err error) {
	outcome, reason := classify(err)
	m.storeDuration.WithLabelValues(string(op), string(outcome)).Observe(time.Since(start).Seconds())
	if reason != "" {
		m.storeErrors.WithLabelValues(string(reason)).Inc()
	}
}

// calledBatch counts each reason once a call: a lost connection is one error,
// however many locks were in the batch.
func (m *Metrics) calledBatch(op storeOp, start time.Time, verdicts []locker.Verdict) {
	took := time.Since(start).Seconds()
	worst := 0
	var reasons []locker.StoreReason
	for _, v := range verdicts {
		outcome, reason := classify(v.Err)
		worst = max(worst, slices.Index(storeOutcomes, outcome))
		if reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
			m.storeErrors.WithLabelValues(string(reason)).Inc()
		}
	}
	m.storeDuration.WithLabelValues(string(op), string(storeOutcomes[worst])).Observe(took)
}

// classify tells what err leaves known and, if the store is to blame, why.
func classify(err error) (storeOutcome, locker.StoreReason) {
	var store *locker.StoreError
	switch {
	case err == nil:
		return outcomeYes, ""
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
