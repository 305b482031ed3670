package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// count is the verdicts of the members on one lock.
type count struct {
	yes, taken, gone int // certain answers about the lock
	conflict         int // what is there is not a lock
	late, failed     int // certainly nothing was done
	unknown          int
	lacking          []int // the members that said gone
}

func (c *count) add(i int, err error) {
	switch {
	case err == nil:
		c.yes++
	case errors.Is(err, locker.ErrTaken):
		c.taken++
	case errors.Is(err, locker.ErrGone):
		c.gone++
		c.lacking = append(c.lacking, i)
	case errors.Is(err, locker.ErrKeyConflict):
		c.conflict++
	case errors.Is(err, locker.ErrLate):
		c.late++
	case locker.CertainNo(err):
		c.failed++
	default:
		c.unknown++
	}
}

func (c *count) answers() int {
	return c.yes + c.taken + c.gone + c.conflict + c.late + c.failed + c.unknown
}

// lost returns how a lock was lost that a majority does not have; nil if that
// is not certain.
func (c *count) lost(need int) error {
	switch {
	case c.taken+c.gone+c.conflict < need:
		return nil
	case c.conflict > max(c.taken, c.gone):
		return locker.ErrKeyConflict
	case c.taken >= c.gone:
		return locker.ErrTaken
	}
	return locker.ErrGone
}

// open is the verdict of members that have not agreed. Nothing was done for
// certain only if no member may have.
func (c *count) open(n, need int, why []error) error {
	if c.late >= need {
		return locker.ErrLate
	}
	certain := c.yes == 0 && c.unknown == 0 && c.answers() == n
	return &locker.StoreError{Reason: locker.StoreNoQuorum, Certain: certain, Err: errors.Join(why...)}
}

// rule says what the verdicts so far amount to. final says that no more will
// come; then it must be decided.
type rule func(c *count, need int, final bool) (decided bool, err error)

// renewRule: a majority has the lock, or has it no more.
func renewRule(c *count, need int, _ bool) (bool, error) {
	if c.yes >= need {
		return true, nil
	}
	err := c.lost(need)
	return err != nil, err
}

// releaseRule: a majority has the lock no more. It was ours unless a majority
// says that it was not; those that say nothing are waited for.
func releaseRule(c *count, need int, final bool) (bool, error) {
	if err := c.lost(need); err != nil {
		return true, err
	}
	return c.yes >= need || final && c.yes > 0 && c.yes+c.taken+c.gone >= need, nil
}

// tally gathers the verdicts of all members on a batch of locks.
type tally struct {
	b    *Backend
	rule rule
	// agreed is told, under the mutex, of each lock that is decided, and of each
	// answer that comes later; after is called, without it, after every answer.
	// Both may be nil.
	agreed func(lock int, c *count, err error)
	after  func()

	mu      sync.Mutex
	counts  []count
	decided []bool
	errs    []error
	left    int     // locks that are not decided
	heard   int     // members that have answered
	why     []error // of members that have failed as a whole
	done    chan struct{}
}

func newTally(b *Backend, n int, r rule) *tally {
	t := &tally{
		b: b, rule: r, counts: make([]count, n), decided: make([]bool, n), errs: make([]error, n),
		left: n, done: make(chan struct{}),
	}
	return t
}

// take takes in the verdicts of member i.
func (t *tally) take(i int, verdicts []locker.Verdict) {
	if t.after != nil {
		defer t.after()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard++
	final := t.heard == len(t.b.nodes)
	if err := verdicts[0].Err; err != nil && !settles(err) {
		t.why = append(t.why, &memberError{t.b.nodes[i].name, err})
	}
	for lock := range t.counts {
		c := &t.counts[lock]
		c.add(i, verdicts[lock].Err)
		t.judgeLocked(lock, final)
	}
}

func (t *tally) judgeLocked(lock int, final bool) {
	c := &t.counts[lock]
	if !t.decided[lock] {
		ok, err := t.rule(c, t.b.need, final)
		if !ok && !final {
			return
		}
		if !ok {
			err = c.open(len(t.b.nodes), t.b.need, t.why)
		}
		t.decided[lock], t.errs[lock] = true, err
		t.left--
		if t.left == 0 {
			close(t.done)
		}
	}
	if t.agreed != nil {
		t.agreed(lock, c, t.errs[lock])
	}
}

// await returns the verdicts once all are decided, or ctx is over.
func (t *tally) await(ctx context.Context) []locker.Verdict {
	heard(ctx, t.done)
	t.mu.Lock()
	defer t.mu.Unlock()
	for lock := range t.counts {
		if !t.decided[lock] {
			t.judgeLocked(lock, true)
		}
	}
	verdicts := make([]locker.Verdict, len(t.counts))
	reading := t.b.clocks.report(t.b.now())
	for lock := range verdicts {
		verdicts[lock] = locker.Verdict{Err: t.errs[lock], Reading: reading}
		reading.Step = 0 // told once
	}
	return verdicts
}

// poll puts a batch of n locks to all members and returns the verdicts that
// they agree on. ask is called for each member in a goroutine of its own, with a
// context that outlives the caller's wait.
func (b *Backend) poll(ctx context.Context, t *tally, ask func(context.Context, *node) []locker.Verdict) []locker.Verdict {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	for i, n := range b.nodes {
		working := b.crew.start(func() {
			ctx, cancel := detached(ctx, 0)
			defer cancel()
			t.take(i, ask(ctx, n))
		})
		if !working {
			t.take(i, all(len(t.counts), errClosed))
		}
	}
	return t.await(ctx)
}

// all returns n verdicts, all the same.
func all(n int, err error) []locker.Verdict {
	verdicts := make([]locker.Verdict, n)
	for i := range verdicts {
		verdicts[i].Err = err
	}
	return verdicts
}
