package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Backend returns f as a backend that is a [locker.Queue] if the wrapped one
// is, and a [locker.Member] likewise. Callers ask a backend for that by
// asserting its type, so f itself, which never is one, has them poll.
func (f *Faulty) Backend() locker.Backend {
	switch inner := f.backend.(type) {
	case locker.Member:
		return f.member(inner)
	case locker.Queue:
		return struct {
			*Faulty
			*faultyQueue
		}{f, &faultyQueue{f, inner}}
	}
	return f
}

// faultyQueue injects faults into what has to do with the line.
type faultyQueue struct {
	f     *Faulty
	queue locker.Queue
}

// AcquireInLine implements [locker.Queue].
func (q *faultyQueue) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	return answer(q.f, ctx, OpAcquireInLine, []locker.Key{c.Key}, func(ctx context.Context) (locker.Grant, error) {
		return q.queue.AcquireInLine(ctx, c, t)
	})
}

// Leave implements [locker.Queue].
func (q *faultyQueue) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	_, err := answer(q.f, ctx, OpLeave, []locker.Key{key}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, q.queue.Leave(ctx, key, t)
	})
	return err
}

// HandOver implements [locker.Queue]. A fault befalls the verdict and the
// grant alike.
func (q *faultyQueue) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	type both struct {
		verdict locker.Verdict
		grant   locker.Grant
		err     error
	}
	b, err := answer(q.f, ctx, OpHandOver, []locker.Key{c.Key}, func(ctx context.Context) (both, error) {
		verdict, grant, err := q.queue.HandOver(ctx, s, c, t)
		return both{verdict, grant, err}, nil
	})
	if err != nil {
		return locker.Verdict{Err: err}, locker.Grant{}, err
	}
	return b.verdict, b.grant, b.err
}

// Listen implements [locker.Queue]. The plan is asked about each hint, as
// about a call of OpHint: a hint that is refused or whose reply is lost is not
// heard, one whose request or reply is delayed is heard later, perhaps after
// later ones, and duplicates are heard again.
func (q *faultyQueue) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	var late sync.WaitGroup
	defer late.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	deliver := func(h locker.Hint) { q.deliver(ctx, &late, h, hear) }
	for ctx.Err() == nil {
		connection, cut := context.WithCancelCause(ctx)
		forget := q.f.connected(cut)
		q.queue.Listen(connection, process, deliver)
		forget()
		var away cutOff
		if !errors.As(context.Cause(connection), &away) {
			cut(nil)
			return
		}
		rest(ctx, away.For)
	}
}

// deliver lets a hint be heard under the fault that the plan has for it.
func (q *faultyQueue) deliver(ctx context.Context, late *sync.WaitGroup, h locker.Hint, hear func(locker.Hint)) {
	fault := q.f.next(OpHint, []locker.Key{h.Key})
	if fault.Refuse != nil || fault.LoseReply {
		return
	}
	delay := fault.RequestDelay + fault.ReplyDelay
	if delay <= 0 {
		hear(h)
	}
	if delay <= 0 && fault.Duplicates == 0 {
		return
	}
	late.Go(func() {
		if delay > 0 {
			if !rest(ctx, delay) {
				return
			}
			hear(h)
		}
		for range fault.Duplicates {
			if !rest(ctx, fault.DuplicateDelay) {
				return
			}
			hear(h)
		}
	})
}

// rest lets d pass; it is false if ctx is over before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// CutListeners ends every connection over which hints are heard, as a killed
// subscription does. Each is made anew after d.
func (f *Faulty) CutListeners(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cut := range f.listeners {
		cut(cutOff{d})
	}
	f.listeners = nil
}

// cutOff is why a listener's connection ended.
type cutOff struct{ For time.Duration }

func (c cutOff) Error() string { return "injected: cut off for " + c.For.String() }

// connected remembers how to cut a connection until forget is called.
func (f *Faulty) connected(cut context.CancelCauseFunc) (forget func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.connections
	f.connections++
	if f.listeners == nil {
		f.listeners = make(map[int]context.CancelCauseFunc)
	}
	f.listeners[id] = cut
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, id)
	}
}
