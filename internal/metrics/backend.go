package metrics

import (
	"context"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Backend returns inner, measured. It can do exactly what inner can do:
// callers ask a backend for its abilities by asserting its type. What heals,
// raises or breaks is passed on if it can do all that a [locker.Member] can.
func (m *Metrics) Backend(inner locker.Backend) locker.Backend {
	in, inspects := inner.(locker.Inspector)
	an, annotates := inner.(locker.Annotator)
	qu, queues := inner.(locker.Queue)
	b, i, a, q := &backend{inner, m}, inspector{in, m}, annotator{an, m}, queue{qu, m}

	breaker, breaks := inner.(locker.Breaker)
	if member, ok := inner.(locker.Member); ok && breaks {
		return struct {
			*backend
			inspector
			annotator
			queue
			healer
			locker.Breaker // not measured: a sidecar breaks no locks
		}{b, i, a, q, healer{member, member}, breaker}
	} else if ok {
		return struct {
			*backend
			inspector
			annotator
			queue
			healer
		}{b, i, a, q, healer{member, member}}
	}
	type abilities struct{ inspects, annotates, queues bool }
	switch (abilities{inspects, annotates, queues}) {
	case abilities{true, true, true}:
		return struct {
			*backend
			inspector
			annotator
			queue
		}{b, i, a, q}
	case abilities{true, true, false}:
		return struct {
			*backend
			inspector
			annotator
		}{b, i, a}
	case abilities{true, false, true}:
		return struct {
			*backend
			inspector
			queue
		}{b, i, q}
	case abilities{false, true, true}:
		return struct {
			*backend
			annotator
			queue
		}{b, a, q}
	case abilities{true, false, false}:
		return struct {
			*backend
			inspector
		}{b, i}
	case abilities{false, true, false}:
		return struct {
			*backend
			annotator
		}{b, a}
	case abilities{false, false, true}:
		return struct {
			*backend
			queue
		}{b, q}
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
	b.m.called(opRenew, start, errorsOf(verdicts)...)
	return verdicts
}

func (b *backend) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	start := time.Now()
	verdicts := b.inner.Release(ctx, surrenders)
	b.m.called(opRelease, start, errorsOf(verdicts)...)
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

type queue struct {
	inner locker.Queue
	m     *Metrics
}

func (q queue) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	start := time.Now()
	grant, err := q.inner.AcquireInLine(ctx, c, t)
	q.m.called(opAcquireInLine, start, err)
	return grant, err
}

func (q queue) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	start := time.Now()
	err := q.inner.Leave(ctx, key, t)
	q.m.called(opLeave, start, err)
	return err
}

func (q queue) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	start := time.Now()
	verdict, grant, err := q.inner.HandOver(ctx, s, c, t)
	q.m.called(opHandOver, start, verdict.Err, err)
	return verdict, grant, err
}

// Listen is not measured: it lasts as long as the process listens.
func (q queue) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	q.inner.Listen(ctx, process, hear)
}

// healer passes on what only a member of a quorum does. That is not measured:
// the quorum is, as a whole.
type healer struct {
	locker.Healer
	locker.Raiser
}

func errorsOf(verdicts []locker.Verdict) []error {
	errs := make([]error, len(verdicts))
	for i, v := range verdicts {
		errs[i] = v.Err
	}
	return errs
}
