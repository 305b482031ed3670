package locker_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// rivalry is a healthy sidecar that wants the key all the time, and sees
// whether it gets it while somebody else counts on it.
type rivalry struct {
	w       *world
	rival   *sidecar
	clients []*client

	mu      sync.Mutex
	got     locker.Instant // last; 0 for not yet
	highest locker.Fence
	over    chan struct{}
	trying  sync.WaitGroup
}

func (r *rivalry) begin() {
	r.over = make(chan struct{})
	for _, c := range r.clients {
		r.highest = max(r.highest, c.st.Fence)
	}
	r.trying.Go(func() {
		for {
			r.try()
			select {
			case <-r.over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

func (r *rivalry) end() {
	close(r.over)
	r.trying.Wait()
}

func (r *rivalry) try() {
	st, _, err := r.rival.Acquire(context.Background(), want("k", 2*time.Second))
	if err != nil {
		return
	}
	now := r.w.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if st.Fence <= r.highest {
		r.w.t.Errorf("fence %d after %d", st.Fence, r.highest)
	}
	r.got, r.highest = now, st.Fence
	for _, c := range r.clients {
		if c.holds && now < c.st.ValidUntil {
			r.w.t.Errorf("the rival has the key for %v while %s counts on it", c.st.ValidUntil.Sub(now), c.owner)
		}
		if c.st.MinHold > 0 && now < c.took.Add(c.st.MinHold) {
			r.w.t.Errorf("the rival has the key %v before the minimum hold is over", c.took.Add(c.st.MinHold).Sub(now))
		}
	}
	_ = r.rival.Release(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{})
}

// update changes what clients count on.
func (r *rivalry) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// mustGet fails the test unless the rival gets the key by then.
func (r *rivalry) mustGet(since, by locker.Instant) {
	r.w.t.Helper()
	r.w.pass(max(0, by.Sub(r.w.now())))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got < since {
		r.w.t.Errorf("the key was not free within %v", by.Sub(since))
	}
}

const soon = 2*storeTimeout + 100*time.Millisecond

// judge has the clients go on with the next process.
func (r *rivalry) judge(next *sidecar, dead *mortal, sc scenario) {
	now := r.w.now()
	free := now.Add(soon)
	for _, c := range r.clients {
		switch {
		case c.holds:
			c.goOn(r, next, dead, sc)
		case c.deleted && c.unheard:
			c.deleteAgain(r.w, next)
		case c.asked:
			// Granted or not, nobody heard of it, or nobody is known to have.
			free = max(free, now.Add(max(sc.ttl, sc.minHold)+soon))
		}
	}
	free = max(free, r.w.now().Add(soon))
	for _, c := range r.clients {
		free = max(free, c.took.Add(c.st.MinHold).Add(soon))
	}
	r.mustGet(now, free)
}

// goOn is what a client meets that counts on its lock.
func (c *client) goOn(r *rivalry, next *sidecar, dead *mortal, sc scenario) {
	w := r.w
	now := w.now()
	st, err := next.Get(c.key, c.handle())
	var lost *locker.LostError
	switch {
	case err == nil && st.Fence == c.st.Fence && now < dead.at.Add(sc.ttl):
	case errors.As(err, &lost) && lost.Fence == c.st.Fence && now >= c.st.ValidUntil &&
		(lost.Cause == locker.CauseExpired || lost.Cause == locker.CauseMaxHold):
		r.update(func() { c.holds = false })
		if err := next.Release(context.Background(), c.key, c.handle(), locker.ReleaseOptions{}); !errors.As(err, &lost) {
			w.t.Errorf("DELETE of what was lost: %v", err)
		}
		return
	default:
		w.t.Errorf("%s was told of fence %d, valid for %v; the next process says %+v, %v", c.owner, c.st.Fence, c.st.ValidUntil.Sub(now), st, err)
		return
	}
	r.update(func() { c.st = st })
	if _, left, _ := w.store.Value(c.key); left < st.ValidFor {
		w.t.Errorf("told valid for %v, the store keeps it for %v", st.ValidFor, left)
	}
	w.pass(soon) // by then the clean-up of the other's requests is over as well
	for range 3 {
		st, err := next.Get(c.key, c.handle())
		switch {
		case err == nil && (st.State == locker.StateHeld || st.ValidFor < st.TTL/2):
		case errors.As(err, &lost) && w.now() >= c.st.ValidUntil && (!c.st.Renew || lost.Cause == locker.CauseMaxHold):
			r.update(func() { c.holds = false })
			return
		default:
			w.t.Errorf("%s goes on: %+v, %v", c.owner, st, err)
		}
		r.update(func() { c.st = st })
		w.pass(time.Second)
	}
	r.update(func() { c.holds = false })
	if err := next.Release(context.Background(), c.key, c.handle(), locker.ReleaseOptions{}); err != nil && !errors.As(err, &lost) {
		w.t.Errorf("%s: DELETE: %v", c.owner, err)
	}
}

// deleteAgain is what a client does that has heard no answer.
func (c *client) deleteAgain(w *world, next *sidecar) {
	var lost *locker.LostError
	err := next.Release(context.Background(), c.key, c.handle(), locker.ReleaseOptions{})
	if err != nil && !errors.Is(err, locker.ErrNotHeld) && !errors.Is(err, locker.ErrOwnerMismatch) && !(errors.As(err, &lost) && w.now() >= c.st.ValidUntil) {
		w.t.Errorf("DELETE again: %v", err)
	}
}
