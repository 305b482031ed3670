package locker

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	choreBatch    = 256
	choreRetryMin = 25 * time.Millisecond
	choreRetryMax = time.Second
	// maxChoreNap bounds how late chores are after the machine was suspended: Go's
	// timers stand still meanwhile.
	maxChoreNap = time.Second
)

// chore is one compare-and-delete that is repeated until it is certain that
// the store holds the token no more and will not hold it again. A request
// that was given up can be executed long after (a frozen server, a slow
// network), so one answer is not enough while such a request may be on its
// way.
type chore struct {
	id        GrantID
	key       Key
	token     Token
	fence     Fence
	owner     string
	note      string
	leaseEnds Instant // after this the store may have ended it by itself
	keepUntil Instant // leave a tombstone until then
	lateUntil Instant // ask once more after this
	giveUp    Instant // the store cannot hold the token after this
	since     Instant // when it was made
	heldFor   time.Duration
	revocable bool // made by Release: told by handle, remembered if unconfirmed
	told      bool // the caller was told that it is unconfirmed

	doubtful bool            // an attempt was not answered, so "not ours" may be our own doing
	heard    <-chan struct{} // closed once those who followed the grant know that it is over; nil if nobody has to
	settled  chan struct{}   // closed at the first certain answer, or when given up
	outcome  error           // then: nil, ErrTaken or ErrGone

	next  Instant
	tries int
	index int // in the queue, or -1
}

func (c *chore) matches(h Handle) bool {
	return c.revocable && (h.Fence == 0 || h.Fence == c.fence) && (h.Owner == "" || h.Owner == c.owner)
}

func (c *chore) isSettled() bool {
	select {
	case <-c.settled:
		return true
	default:
		return false
	}
}

func (c *chore) surrender(holder string, now Instant) Surrender {
	return Surrender{Key: c.key, Token: c.token, Holder: holder, Keep: max(0, c.keepUntil.Sub(now))}
}

// addChoreLocked registers the compare-and-delete of a grant that has just
// left the table, or that never got into it. It does not schedule it.
func (l *Locker) addChoreLocked(g *grant, skipMinHold bool, now Instant) *chore {
	c := &chore{
		id: g.id, key: g.key, token: g.token, fence: g.fence, owner: g.owner, note: g.note,
		lateUntil: max(g.lateUntil, g.inFlightUntil), giveUp: g.storeUntil.Add(l.cfg.StoreTimeout),
		leaseEnds: g.validUntil, since: now, settled: make(chan struct{}), index: -1,
	}
	if !skipMinHold && g.minHold > 0 {
		c.keepUntil = g.asked.Add(g.minHold)
	}
	l.chores[c.key] = append(l.chores[c.key], c)
	return c
}

// scheduleLocked has the janitor do the chore at an instant.
func (l *Locker) scheduleLocked(c *chore, at Instant) {
	c.next = at
	if c.index >= 0 {
		heap.Fix(&l.queue, c.index)
	} else {
		heap.Push(&l.queue, c)
	}
	if c.index == 0 {
		l.poke()
	}
}

// settleLocked takes in the verdict on an attempt at a chore.
func (l *Locker) settleLocked(c *chore, sent Instant, err error, now Instant) {
	l.newsLocked()
	if err == nil || isLoss(err) {
		if !c.isSettled() {
			if !c.doubtful && now < c.leaseEnds {
				c.outcome = err
			}
			close(c.settled)
		}
		if sent > c.lateUntil {
			l.endChoreLocked(c, now)
		} else {
			l.scheduleLocked(c, c.lateUntil+1)
		}
		return
	}
	if !CertainNo(err) {
		c.doubtful = true
	}
	if now >= c.giveUp {
		if !c.isSettled() {
			close(c.settled)
		}
		l.endChoreLocked(c, now)
		return
	}
	pause := min(choreRetryMax, choreRetryMin<<min(c.tries, 10))
	c.tries++
	l.scheduleLocked(c, min(now.Add(pause), c.giveUp))
}

func (l *Locker) endChoreLocked(c *chore, now Instant) {
	if c.index >= 0 {
		heap.Remove(&l.queue, c.index)
	}
	rest := slices.DeleteFunc(l.chores[c.key], func(other *chore) bool { return other == c })
	if len(rest) == 0 {
		delete(l.chores, c.key)
	} else {
		l.chores[c.key] = rest
	}
	if !l.endings.remembersLoss(c.key, c.id) {
		l.noteOverLocked(c.id)
	}
	if c.told {
		e := &ending{key: c.key, fence: c.fence, owner: c.owner, note: c.note, at: now, wall: time.Now()}
		if c.outcome != nil {
			e.lost = &LostError{Fence: c.fence, Cause: causeOf(c.outcome), LostAt: e.wall}
		}
		l.endings.add(e)
	}
}

// unsettledLocked returns a chore of the key that has had no certain answer.
func (l *Locker) unsettledLocked(key Key) *chore {
	for _, c := range l.chores[key] {
		if !c.isSettled() {
			return c
		}
	}
	return nil
}

// attempt does one chore now, in the caller's goroutine.
func (l *Locker) attempt(c *chore) {
	l.perform([]*chore{c})
}

// perform sends a batch of chores, none of which is in the queue, and takes in
// the verdicts. It runs on a context of its own: what was accepted is carried
// out, whoever goes away.
func (l *Locker) perform(batch []*chore) {
	_ = l.writeNotes() // what has to be given back is given back, written down or not
	l.mu.Lock()
	sent := l.now()
	asks := make([]Surrender, len(batch))
	for i, c := range batch {
		asks[i] = c.surrender(l.cfg.Holder, sent)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.StoreTimeout)
	verdicts := l.backend.Release(ctx, asks)
	cancel()

	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for i, c := range batch {
		l.learnLocked(verdicts[i].Reading, now)
		l.settleLocked(c, sent, verdicts[i].Err, now)
	}
}

// Run does the chores until ctx is over: it gives back what was lost,
// undelivered or never answered for, listens for those who wait, takes those
// who left out of line, and writes the log lines that could not be written
// under the mutex. It blocks, and leaves no goroutine behind.
func (l *Locker) Run(ctx context.Context) {
	var helpers sync.WaitGroup
	defer l.writeLog()
	defer helpers.Wait()
	helpers.Go(func() { l.listenWhileWaiting(ctx) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer func() { _ = l.writeNotes() }()
	for ctx.Err() == nil {
		batch, departures, wait := l.takeChores()
		if l.mustLog() {
			helpers.Go(l.writeLog)
		}
		_ = l.writeNotes() // the journal tells of its trouble itself
		if len(departures) > 0 {
			helpers.Go(func() { l.depart(departures) })
		}
		if len(batch) > 0 {
			l.perform(batch)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
	}
	// A place that nobody asks from any more would hold others up for seconds.
	l.depart(l.takeDepartures())
}

// takeDepartures takes over who has left the line since the last call.
func (l *Locker) takeDepartures() (departures []departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	departures, l.departures = l.departures, nil
	return departures
}

// takeChores takes what is due off the queue, and who has left the line. It
// tells how long to wait if that is nothing.
func (l *Locker) takeChores() (batch []*chore, departures []departure, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	departures, l.departures = l.departures, nil
	for len(l.queue) > 0 && len(batch) < choreBatch {
		if l.queue[0].next > now {
			break
		}
		batch = append(batch, heap.Pop(&l.queue).(*chore))
	}
	if len(batch) == 0 && len(l.queue) > 0 {
		return nil, departures, min(l.queue[0].next.Sub(now), maxChoreNap)
	}
	return batch, departures, time.Hour
}

// poke wakes Run.
func (l *Locker) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// choreQueue is a heap of chores by when they are due.
type choreQueue []*chore

func (q choreQueue) Len() int           { return len(q) }
func (q choreQueue) Less(i, j int) bool { return q[i].next < q[j].next }
func (q choreQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *choreQueue) Push(x any) {
	c := x.(*chore)
	c.index = len(*q)
	*q = append(*q, c)
}

func (q *choreQueue) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	c.index = -1
	return c
}
