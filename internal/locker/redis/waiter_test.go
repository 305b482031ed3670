package redis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// waiter is a process with one caller at a time, who waits as in a sidecar.
type waiter struct {
	b      *Backend
	name   string
	number int64
	calls  int64
	hints  chan locker.Hint
}

func newWaiter(b *Backend, name string) *waiter {
	return &waiter{b: b, name: name, hints: make(chan locker.Hint, 1<<10)}
}

// listen has the waiter hear hints until the test ends, or stop is called.
func (w *waiter) listen(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		w.b.Listen(ctx, w.name, func(h locker.Hint) { w.hints <- h })
	})
	stop = func() { cancel(); listening.Wait() }
	t.Cleanup(stop)
	w.await(t, locker.HintListening)
	return stop
}

// await waits for a hint of that kind and returns it.
func (w *waiter) await(t testing.TB, kind locker.HintKind) locker.Hint {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case h := <-w.hints:
			if h.Kind == kind {
				return h
			}
		case <-deadline.C:
			t.Fatalf("%s has not heard hint %d", w.name, kind)
		}
	}
}

func (w *waiter) turn() locker.Turn {
	w.calls++
	return locker.Turn{Process: w.name, Number: w.number, Call: w.calls, WaitLeft: time.Minute}
}

// ask sends the claim once. Without a grant it returns the refusal.
func (w *waiter) ask(t testing.TB, c locker.Claim) (locker.Grant, *locker.HeldError) {
	t.Helper()
	c.NotAfter = soon()
	grant, err := w.b.AcquireInLine(t.Context(), c, w.turn())
	var held *locker.HeldError
	switch {
	case err == nil:
		w.number = 0
	case errors.As(err, &held) && held.Standing != nil:
		w.number = held.Standing.Number
	default:
		t.Fatalf("%s: %v, want a grant or a standing", w.name, err)
	}
	return grant, held
}

// join takes a place in the line for a key that is taken, with a new claim.
func (w *waiter) join(t testing.TB, key locker.Key) locker.Claim {
	t.Helper()
	c := claimFor(key)
	if _, held := w.ask(t, c); held == nil {
		t.Fatalf("%s has got %q, which was to be taken", w.name, key)
	}
	return c
}

// get asks until the claim is granted, and whenever it is to.
func (w *waiter) get(t testing.TB, c locker.Claim) locker.Grant {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		grant, held := w.ask(t, c)
		if held == nil {
			return grant
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not got the lock", w.name)
		}
		w.rest(held.Standing.AskIn)
	}
}

// rest returns after d, or with a hint that calls for asking.
func (w *waiter) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case h := <-w.hints:
			if h.Kind != locker.HintNear {
				return
			}
		}
	}
}
