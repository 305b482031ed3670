package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// wire stands between a Locker and its faults. It fails the test if the Locker
// sends what it must not: a renewal of a lease that is over or given back.
type wire struct {
	*lockertest.Faulty
	t   *testing.T
	now locker.Clock

	mu     sync.Mutex
	leases map[locker.Token]*lease
}

// lease is what the wire reckons by itself. Where a minimum hold makes the
// store keep the key for longer, it reckons with that.
type lease struct {
	asked      locker.Instant // of the first request that may have been granted
	keep       time.Duration  // as asked for by it
	inDoubt    bool
	validUntil locker.Instant
	givenBack  locker.Instant // 0 for not yet
}

func newWire(t *testing.T, now locker.Clock, faulty *lockertest.Faulty) *wire {
	return &wire{Faulty: faulty, t: t, now: now, leases: make(map[locker.Token]*lease)}
}

func (w *wire) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	w.mu.Lock()
	if w.leases[c.Token] == nil {
		w.leases[c.Token] = new(lease)
	}
	e := w.leases[c.Token]
	if !e.inDoubt {
		e.asked, e.keep = w.now(), c.Keep
	}
	w.mu.Unlock()
	answer, err := w.Faulty.Acquire(ctx, c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		e.validUntil = e.asked.Add(e.keep - locker.DriftMargin(e.keep))
	} else if !locker.CertainNo(err) {
		e.inDoubt = true
	}
	return answer, err
}

func (w *wire) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	sent := w.now()
	w.mu.Lock()
	for _, r := range renewals {
		e := w.leases[r.Token]
		switch {
		case e == nil:
			w.t.Errorf("renewal of %q with a token that was never asked for", r.Key)
		case sent >= e.validUntil:
			w.t.Errorf("renewal of %q sent %v after its lease", r.Key, sent.Sub(e.validUntil))
		case r.NotAfter > e.validUntil:
			w.t.Errorf("renewal of %q may be executed %v after its lease", r.Key, r.NotAfter.Sub(e.validUntil))
		case e.givenBack != 0 && sent > e.givenBack:
			w.t.Errorf("renewal of %q sent %v after it was given back", r.Key, sent.Sub(e.givenBack))
		}
	}
	w.mu.Unlock()
	verdicts := w.Faulty.Renew(ctx, renewals)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range renewals {
		if e := w.leases[r.Token]; e != nil && verdicts[i].Err == nil && r.Keep > 0 {
			e.validUntil = sent.Add(r.Keep - locker.DriftMargin(r.Keep))
		}
	}
	return verdicts
}

func (w *wire) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	w.mu.Lock()
	for _, s := range surrenders {
		if e := w.leases[s.Token]; e != nil && e.givenBack == 0 {
			e.givenBack = w.now()
		}
	}
	w.mu.Unlock()
	return w.Faulty.Release(ctx, surrenders)
}

// fenceAudit stands before the store, behind all faults, and fails the test if
// a grant is executed whose fence does not rise.
type fenceAudit struct {
	locker.Backend
	t *testing.T

	mu      sync.Mutex
	highest map[locker.Key]locker.Fence
	granted map[locker.Token]locker.Fence
	down    bool
}

func newFenceAudit(t *testing.T, store locker.Backend) *fenceAudit {
	return &fenceAudit{
		Backend: store, t: t,
		highest: make(map[locker.Key]locker.Fence), granted: make(map[locker.Token]locker.Fence),
	}
}

// setDown makes the store refuse all grants, as while it restarts.
func (a *fenceAudit) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *fenceAudit) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock() // held for the call, so that grants are seen in their order
	if a.down {
		return locker.Grant{}, errDown
	}
	answer, err := a.Backend.Acquire(ctx, c)
	if err != nil || a.granted[c.Token] == answer.Fence {
		return answer, err
	}
	if answer.Fence <= a.highest[c.Key] {
		a.t.Errorf("fence %d of %q was granted after %d", answer.Fence, c.Key, a.highest[c.Key])
	}
	a.highest[c.Key] = answer.Fence
	a.granted[c.Token] = answer.Fence
	return answer, err
}

// floorless is a store that does not judge fences by the sidecar's floor.
type floorless struct{ locker.Backend }

func (f floorless) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	c.Floor = 0
	return f.Backend.Acquire(ctx, c)
}
