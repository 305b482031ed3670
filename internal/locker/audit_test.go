package locker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// wire stands between a Locker and its faults. It fails the test if the Locker
// sends what it must not: a renewal of a lease that is over or given back, or a
// claim that is on its way already, or was granted.
type wire struct {
	*lockertest.Faulty
	queue locker.Queue // the same faults, for those who wait
	t     *testing.T
	now   locker.Clock

	mu     sync.Mutex
	leases map[locker.Token]*lease
	dead   bool // the process has ended: what it does now it has not done
}

var _ locker.Queue = (*wire)(nil)

// lease is what the wire reckons by itself. Where a minimum hold makes the
// store keep the key for longer, it reckons with that.
type lease struct {
	validUntil locker.Instant
	givenBack  locker.Instant // 0 for not yet
	asking     bool           // a claim with the token is on its way
}

// newWire returns a wire whose store keeps a line.
func newWire(t *testing.T, now locker.Clock, faulty *lockertest.Faulty) *wire {
	return &wire{Faulty: faulty, queue: faulty.Backend().(locker.Queue), t: t, now: now, leases: make(map[locker.Token]*lease)}
}

// next returns the wire of the process that comes after the one of this, which
// has ended.
func (w *wire) next(faulty *lockertest.Faulty) *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	after := newWire(w.t, w.now, faulty)
	for token, e := range w.leases {
		copied := *e
		copied.asking = false
		after.leases[token] = &copied
	}
	return after
}

// ends says that the process has ended.
func (w *wire) ends() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

func (w *wire) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	sent := w.asking(c)
	answer, err := w.Faulty.Acquire(ctx, c)
	w.answered(c, sent, answer, err)
	return answer, err
}

func (w *wire) AcquireInLine(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
	if turn.WaitLeft <= 0 || turn.Process == "" {
		w.t.Errorf("a caller is in line for %q that waits for %v: %+v", c.Key, turn.WaitLeft, turn)
	}
	sent := w.asking(c)
	answer, err := w.queue.AcquireInLine(ctx, c, turn)
	w.answered(c, sent, answer, err)
	return answer, err
}

func (w *wire) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, turn locker.Turn) (locker.Verdict, locker.Grant, error) {
	if s.Key != c.Key || s.Token == c.Token || s.Keep > 0 {
		w.t.Errorf("%q is handed over as %q, to be kept for %v", s.Key, c.Key, s.Keep)
	}
	w.givingBack(s)
	sent := w.asking(c)
	verdict, answer, err := w.queue.HandOver(ctx, s, c, turn)
	w.answered(c, sent, answer, err)
	return verdict, answer, err
}

func (w *wire) Leave(ctx context.Context, key locker.Key, turn locker.Turn) error {
	return w.queue.Leave(ctx, key, turn)
}

func (w *wire) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	w.queue.Listen(ctx, process, hear)
}

// asking takes in that a claim is about to be sent.
func (w *wire) asking(c locker.Claim) (sent locker.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent = w.now()
	if w.dead {
		return sent
	}
	e := w.leases[c.Token]
	if e == nil {
		e = new(lease)
		w.leases[c.Token] = e
	}
	switch {
	case e.asking:
		w.t.Errorf("claim of %q sent while the same is on its way", c.Key)
	case e.validUntil != 0:
		w.t.Errorf("claim of %q sent again though it was granted", c.Key)
	case e.givenBack != 0 && sent > e.givenBack:
		w.t.Errorf("claim of %q sent %v after it was given back", c.Key, sent.Sub(e.givenBack))
	case c.NotAfter > sent.Add(storeTimeout):
		w.t.Errorf("claim of %q may be executed %v after it was sent", c.Key, c.NotAfter.Sub(sent))
	}
	e.asking = true
	return sent
}

// answered takes in the answer to a claim.
func (w *wire) answered(c locker.Claim, sent locker.Instant, answer locker.Grant, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.leases[c.Token]
	if w.dead || e == nil {
		return
	}
	e.asking = false
	if err == nil {
		e.validUntil = sent.Add(answer.Left - locker.DriftMargin(answer.Left))
	}
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
	w.givingBack(surrenders...)
	return w.Faulty.Release(ctx, surrenders)
}

// forget gives up what the wire remembers.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases = make(map[locker.Token]*lease)
}

func (w *wire) givingBack(surrenders ...locker.Surrender) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range surrenders {
		if e := w.leases[s.Token]; !w.dead && e != nil && e.givenBack == 0 {
			e.givenBack = w.now()
		}
	}
}

// fenceAudit stands before the store, behind all faults, and fails the test if
// a grant is executed whose fence does not rise. It counts who listens.
type fenceAudit struct {
	locker.Queue
	store locker.Backend
	t     *testing.T

	// seen, if set, is told of the answer to every claim, in the order in
	// which the store gives them.
	seen func(c locker.Claim, err error)

	mu        sync.Mutex
	highest   map[locker.Key]locker.Fence
	granted   map[locker.Token]locker.Fence
	handed    int
	listening int
	down      bool
}

// queueing is a backend that keeps a line.
type queueing interface {
	locker.Backend
	locker.Queue
}

func newFenceAudit(t *testing.T, store queueing) *fenceAudit {
	return &fenceAudit{
		Queue: store, store: store, t: t,
		highest: make(map[locker.Key]locker.Fence), granted: make(map[locker.Token]locker.Fence),
	}
}

// setDown makes the store refuse all grants, as while it restarts.
func (a *fenceAudit) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// counts returns how often a lock was handed over, and how many listen.
func (a *fenceAudit) counts() (handed, listening int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handed, a.listening
}

func (a *fenceAudit) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	return a.judge(c, func() (locker.Grant, error) { return a.store.Acquire(ctx, c) })
}

func (a *fenceAudit) AcquireInLine(ctx context.Context, c locker.Claim, turn locker.Turn) (locker.Grant, error) {
	return a.judge(c, func() (locker.Grant, error) { return a.Queue.AcquireInLine(ctx, c, turn) })
}

func (a *fenceAudit) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, turn locker.Turn) (locker.Verdict, locker.Grant, error) {
	verdict := locker.Verdict{Err: errDown}
	answer, err := a.judge(c, func() (answer locker.Grant, err error) {
		verdict, answer, err = a.Queue.HandOver(ctx, s, c, turn)
		if err == nil && verdict.Err == nil {
			a.handed++
		}
		return answer, err
	})
	return verdict, answer, err
}

func (a *fenceAudit) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	return a.store.Renew(ctx, renewals)
}

func (a *fenceAudit) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	return a.store.Release(ctx, surrenders)
}

func (a *fenceAudit) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	count := func(by int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.listening += by
	}
	count(1)
	defer count(-1)
	a.Queue.Listen(ctx, process, hear)
}

// judge executes a claim. It lets one at a time pass, so that grants are seen
// in their order.
func (a *fenceAudit) judge(c locker.Claim, execute func() (locker.Grant, error)) (locker.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return locker.Grant{}, errDown
	}
	answer, err := execute()
	if a.seen != nil {
		a.seen(c, err)
	}
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
