package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// Faulty injects faults into the calls of a backend. It works in synctest
// bubbles. Close it: requests outlive their callers. Backend returns what can
// also wait in line.
type Faulty struct {
	backend locker.Backend
	closing chan struct{}
	close   sync.Once
	running sync.WaitGroup

	mu     sync.Mutex
	plan   Plan
	calls  int
	faults int
	kinds  map[figures.Row]int // of the faults

	listeners   map[int]context.CancelCauseFunc
	connections int // of listeners, so far
}

var (
	_ locker.Backend   = (*Faulty)(nil)
	_ locker.Inspector = (*Faulty)(nil)
	_ locker.Annotator = (*Faulty)(nil)
)

// NewFaulty wraps a backend. A nil plan injects nothing.
func NewFaulty(backend locker.Backend, plan Plan) *Faulty {
	return &Faulty{backend: backend, plan: plan, kinds: make(map[figures.Row]int), closing: make(chan struct{})}
}

// SetPlan decides about the calls that begin from now on.
func (f *Faulty) SetPlan(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Counts returns how many calls there were, and how many met a fault.
func (f *Faulty) Counts() (calls, faults int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.faults
}

// Figures counts the calls and faults so far in a column of the figures.
func (f *Faulty) Figures(column figures.Column) {
	f.mu.Lock()
	defer f.mu.Unlock()
	figures.Count(figures.Calls, column, f.calls)
	for kind, n := range f.kinds {
		figures.Count(kind, column, n)
	}
}

// Wait returns once every request that is still on its way has been executed.
// No call may begin meanwhile.
func (f *Faulty) Wait() { f.running.Wait() }

// Close drops the requests that are still on their way and returns once no
// goroutine is left. It may be called again. No call may begin meanwhile.
func (f *Faulty) Close() {
	f.close.Do(func() { close(f.closing) })
	f.running.Wait()
}

// What a caller learns of an outcome that Faulty keeps to itself.
var (
	errReplyLost = &locker.StoreError{Reason: locker.StoreBroken, Err: errors.New("injected: the reply was lost")}
	errNoAnswer  = &locker.StoreError{Reason: locker.StoreTimeout, Err: errors.New("injected: no answer in time")}
)

// Acquire implements [locker.Backend].
func (f *Faulty) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	return answer(f, ctx, OpAcquire, []locker.Key{c.Key}, func(ctx context.Context) (locker.Grant, error) {
		return f.backend.Acquire(ctx, c)
	})
}

// Renew implements [locker.Backend]. A fault befalls a batch as a whole.
func (f *Faulty) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	return answerBatch(f, ctx, OpRenew, renewals, func(r locker.Renewal) locker.Key { return r.Key }, f.backend.Renew)
}

// Release implements [locker.Backend]. A fault befalls a batch as a whole.
func (f *Faulty) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	return answerBatch(f, ctx, OpRelease, surrenders, func(s locker.Surrender) locker.Key { return s.Key }, f.backend.Release)
}

// Inspect implements [locker.Inspector] with the wrapped backend's answer, or
// [locker.ErrUnsupported].
func (f *Faulty) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	inspector, ok := f.backend.(locker.Inspector)
	if !ok {
		return locker.Occupancy{}, locker.ErrUnsupported
	}
	return answer(f, ctx, OpInspect, []locker.Key{key}, func(ctx context.Context) (locker.Occupancy, error) {
		return inspector.Inspect(ctx, key)
	})
}

// Annotate implements [locker.Annotator] with the wrapped backend's answer, or
// [locker.ErrUnsupported].
func (f *Faulty) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	annotator, ok := f.backend.(locker.Annotator)
	if !ok {
		return locker.ErrUnsupported
	}
	_, err := answer(f, ctx, OpAnnotate, []locker.Key{key}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, annotator.Annotate(ctx, key, token, note)
	})
	return err
}

// answerBatch is [answer] for the methods that give a verdict on each of many.
func answerBatch[R any](f *Faulty, ctx context.Context, op Op, batch []R, key func(R) locker.Key, method func(context.Context, []R) []locker.Verdict) []locker.Verdict {
	keys := make([]locker.Key, len(batch))
	for i, r := range batch {
		keys[i] = key(r)
	}
	batch = append([]R(nil), batch...) // it may be read after the caller has left
	verdicts, err := answer(f, ctx, op, keys, func(ctx context.Context) ([]locker.Verdict, error) {
		return method(ctx, batch), nil
	})
	if err != nil {
		verdicts = make([]locker.Verdict, len(batch))
		for i := range verdicts {
			verdicts[i].Err = err
		}
	}
	return verdicts
}

// reply is what a method returned.
type reply[V any] struct {
	value V
	err   error
}

// answer makes one call under the fault that the plan has for it. An error of
// its own is an injected one.
func answer[V any](f *Faulty, ctx context.Context, op Op, keys []locker.Key, method func(context.Context) (V, error)) (V, error) {
	var none V
	fault := f.next(op, keys)
	switch {
	case fault == Fault{}:
		return method(ctx)
	case fault.Refuse != nil:
		return none, fault.Refuse
	}
	replies := make(chan reply[V], 1)
	f.running.Go(func() {
		if !f.pass(fault.RequestDelay) {
			return
		}
		// The store executes what has reached it, whoever has left meanwhile.
		detached := context.WithoutCancel(ctx)
		var r reply[V]
		r.value, r.err = method(detached)
		if fault.LoseReply {
			r = reply[V]{err: errReplyLost}
		}
		if fault.ReplyDelay == 0 {
			replies <- r
		} else {
			f.running.Go(func() {
				if f.pass(fault.ReplyDelay) {
					replies <- r
				}
			})
		}
		for range fault.Duplicates {
			if !f.pass(fault.DuplicateDelay) {
				return
			}
			_, _ = method(detached) // nobody sees the reply
		}
	})
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
	case <-f.closing:
	}
	return none, errNoAnswer
}

// next counts a call and asks the plan about it.
func (f *Faulty) next(op Op, keys []locker.Key) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := Call{N: f.calls, Op: op, Keys: keys}
	f.calls++
	if f.plan == nil {
		return Fault{}
	}
	fault := f.plan(call)
	if fault != (Fault{}) {
		f.faults++
		for _, kind := range fault.kinds() {
			f.kinds[kind]++
		}
	}
	return fault
}

// pass lets d pass; it is false if the Faulty was closed before.
func (f *Faulty) pass(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.closing:
		return false
	}
}
