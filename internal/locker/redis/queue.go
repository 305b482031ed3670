package redis

import (
	"errors"
	"slices"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// enqueue queues a call, or fails it at once.
func (p *pipeline) enqueue(c *call) {
	if err := p.push(c); err != nil {
		c.fail(err)
	}
}

func (p *pipeline) push(c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed}
	case len(p.queue) >= maxQueue:
		return &locker.StoreError{Reason: locker.StoreBusy, Certain: true, Err: errors.New("too many calls wait to be sent")}
	}
	p.queue = append(p.queue, c)
	p.wakeLocked()
	return nil
}

// wakeLocked wakes an idle lane, one that has a connection if there is any.
func (p *pipeline) wakeLocked() {
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		l.wake <- struct{}{} // has room: an idle lane has been woken by nobody
	}
}

// restLocked makes a lane idle. The last one is used next: one that has a
// connection, if there is any.
func (p *pipeline) restLocked(l *lane) {
	if l.linked {
		p.idle = append(p.idle, l)
		return
	}
	p.idle = slices.Insert(p.idle, 0, l)
}

// borrow returns an idle lane that has a connection, unless others are queued
// before the caller. It must be given back.
func (p *pipeline) borrow() *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if p.closed || len(p.queue) > 0 || n == 0 || !p.idle[n-1].linked {
		return nil
	}
	l := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return l
}

// giveBack ends a borrow, in which one call or none was sent.
func (p *pipeline) giveBack(l *lane, calls uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Calls += calls
	p.stats.Batches += calls
	if len(p.queue) > 0 {
		l.wake <- struct{}{} // has room, as above
		return
	}
	p.restLocked(l)
}

// waiting tells whether calls wait to be sent. Without any the lane is idle
// from here on, until it is woken.
func (p *pipeline) waiting(l *lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.restLocked(l)
		return false
	}
	return true
}

// next returns the calls to send now; there may be none any more.
func (p *pipeline) next() []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	batch := p.takeLocked(maxBatch, taken)
	if len(batch) > 0 {
		p.stats.Calls += uint64(len(batch))
		p.stats.Batches++
	}
	return batch
}

// takeLocked takes calls off the queue, see [call.take].
func (p *pipeline) takeLocked(most int, as int32) []*call {
	var batch []*call
	n := 0
	for ; n < len(p.queue) && len(batch) < most; n++ {
		if p.queue[n].take(as) {
			batch = append(batch, p.queue[n])
		}
	}
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	return batch
}

// connected counts a lane's new connection.
func (p *pipeline) connected(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linkedLocked(l, true)
	p.linked++
	p.stats.Connects++
}

// disconnected counts the end of a lane's connection.
func (p *pipeline) disconnected(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linkedLocked(l, false)
	p.linked--
}

// linkedLocked notes whether a lane, which may be idle, has a connection.
func (p *pipeline) linkedLocked(l *lane, linked bool) {
	l.linked = linked
	if i := slices.Index(p.idle, l); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.restLocked(l)
	}
}

// notConnected counts a connection that could not be opened.
func (p *pipeline) notConnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Failures++
}

// unreachable tells of a lane's failure to connect. If no lane has a
// connection, all that is queued is answered with err. Otherwise it is left to
// those that have one, and this lane is idle.
func (p *pipeline) unreachable(l *lane, err error) (idle bool) {
	p.mu.Lock()
	var failed []*call
	if p.linked == 0 {
		failed = p.takeLocked(len(p.queue), refused)
	} else {
		p.restLocked(l)
		if len(p.queue) > 0 && p.idle[len(p.idle)-1].linked {
			p.wakeLocked() // one that is busy looks at the queue by itself
		}
		idle = true
	}
	p.mu.Unlock()
	for _, c := range failed {
		c.fail(err)
	}
	return idle
}
