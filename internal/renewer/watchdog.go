package renewer

import (
	"context"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// batchSize bounds how long one renewal script keeps a store busy.
	batchSize = 250
	// maxSleep bounds how late the loop notices that the machine was
	// suspended: Go's timers stand still meanwhile.
	maxSleep = time.Second
	// stuckAfter is when a loop that has not turned counts as stuck.
	stuckAfter = 10 * time.Second
)

// Table is what the watchdog tends: locker.Locker.
type Table interface {
	// Renew sends one renewal for each grant that still needs it and calls
	// Watch or Forget with how to go on. It blocks until it has the answers,
	// or their deadline is over.
	Renew(ctx context.Context, ids []locker.GrantID)
	// Expire ends the grants whose validity is over.
	Expire(ids []locker.GrantID)
}

// Watchdog implements locker.Watchdog. Run must be running for its schedule to
// be kept. The zero value is not usable: see New.
type Watchdog struct {
	now  locker.Clock
	wake chan struct{}

	mu       sync.Mutex
	schedule schedule
	turned   time.Time // when the loop last turned; on Go's clock, since that stands still in suspend
	asleep   bool      // until woken: nothing has been watched for a whole maxSleep

	// turnsAt is when the loop turns next by itself, unless it is asleep.
	// Short locks come and go without waking it.
	turnsAt locker.Instant
	vacant  bool // nothing was watched when it last turned
}

// New returns a watchdog that watches nothing yet.
func New(now locker.Clock) *Watchdog {
	return &Watchdog{now: now, wake: make(chan struct{}, 1), turned: time.Now(), asleep: true}
}

// Watch schedules the grant's next renewal, instead of any earlier one.
func (w *Watchdog) Watch(b locker.Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	e := entry{id: b.ID, due: next(b, now), validUntil: b.ValidUntil}
	if b.Failures == 0 {
		e.together = b.TTL / togetherFraction
	}
	w.schedule.put(e)
	wake := w.asleep || e.due < w.turnsAt || now > w.turnsAt // which it has missed: suspended, it sleeps on
	if w.asleep {
		w.asleep, w.turned = false, time.Now()
	}
	if wake {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Forget ends the watch over a grant.
func (w *Watchdog) Forget(id locker.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedule.remove(id)
}

// Run keeps the schedule until ctx is over, then waits for the renewals that
// are on their way. A batch that hangs does not hold up the next one, nor the
// end of a lease.
func (w *Watchdog) Run(ctx context.Context, table Table) {
	var batches sync.WaitGroup
	defer batches.Wait()
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for ctx.Err() == nil {
		over, due, sleep := w.turn()
		if len(over) > 0 {
			table.Expire(over)
		}
		if len(due) > 0 {
			batches.Go(func() { table.Renew(ctx, due) })
		}
		if len(over)+len(due) > 0 {
			continue
		}
		if sleep >= 0 {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// turn takes what is due, or tells how long to sleep; below 0 until woken.
func (w *Watchdog) turn() (over, due []locker.GrantID, sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	w.turned = time.Now()
	over, due = w.schedule.take(now, batchSize)
	head, any := w.schedule.head()
	w.asleep = !any && w.vacant
	w.vacant = !any
	switch {
	case w.asleep:
		return over, due, -1
	case any:
		sleep = min(head.Sub(now), maxSleep)
	default:
		sleep = maxSleep
	}
	w.turnsAt = now.Add(sleep)
	return over, due, sleep
}

// Stuck tells whether the loop has stopped turning although locks are held:
// the one thing that a restart of the process can mend.
func (w *Watchdog) Stuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.asleep && time.Since(w.turned) > stuckAfter
}
