package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// maxBatch is how many calls go out in one write at most.
	maxBatch = 256

	// maxQueue is how many calls may wait to be sent.
	maxQueue = 16 << 10
)

// pipeline sends calls to one server over a few connections of its own, the
// lanes. Whatever is queued when a lane is free goes out in one write; a lone
// call waits for nobody. Each caller leaves at its own deadline, whatever the
// driver does.
type pipeline struct {
	name      string
	connector *connector
	timeout   time.Duration // for callers without a deadline
	ids       *atomic.Uint64

	ctx    context.Context // ends with the pipeline
	cancel context.CancelFunc
	lanes  sync.WaitGroup

	mu     sync.Mutex
	queue  []*call
	idle   []*lane // the last one was used last
	all    []*lane
	linked int // lanes that have a connection
	closed bool
	stats  PoolStats
}

// PoolStats says how one of a Backend's groups of connections fares.
type PoolStats struct {
	Name        string
	Connections int    // open now
	Queued      int    // calls that wait to be sent, now
	Connects    uint64 // connections opened
	Failures    uint64 // connections that could not be opened
	Calls       uint64 // calls sent
	Batches     uint64 // writes they were sent in
	Abandoned   uint64 // calls whose deadline passed before they could be sent
}

func newPipeline(name string, c *connector, timeout time.Duration, ids *atomic.Uint64, lanes int) *pipeline {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipeline{name: name, connector: c, timeout: timeout, ids: ids, ctx: ctx, cancel: cancel}
	for range lanes {
		l := &lane{p: p, wake: make(chan struct{}, 1), warm: make(chan chan error)}
		p.all = append(p.all, l)
		p.lanes.Go(l.run)
	}
	return p
}

var errClosed = errors.New("the backend is closed")

// do sends a call and waits for its answer until ctx is over, or for the
// store's timeout if ctx has no deadline.
func (p *pipeline) do(ctx context.Context, c *call) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	p.submit(ctx, c)
	return p.await(ctx, c)
}

// bounded gives ctx a deadline if it has none.
func (p *pipeline) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.timeout)
}

// submit queues a call. ctx must have a deadline.
func (p *pipeline) submit(ctx context.Context, c *call) {
	c.id = strconv.FormatUint(p.ids.Add(1), 36)
	c.deadline, _ = ctx.Deadline()
	c.done = make(chan struct{})
	if ctx.Err() != nil {
		c.fail(&locker.StoreError{Reason: locker.StoreTimeout, Certain: true, Err: errors.New("the caller had left before it was sent")})
		return
	}
	if err := p.enqueue(c); err != nil {
		c.fail(err)
	}
}

func (p *pipeline) enqueue(c *call) error {
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

// wakeLocked wakes the idle lane that was used last: it is the likeliest to
// have a connection.
func (p *pipeline) wakeLocked() {
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		l.wake <- struct{}{} // has room: an idle lane has been woken by nobody
	}
}

// await returns once the call is answered or ctx is over.
func (p *pipeline) await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return c.err
	default:
	}
	if c.abandon() {
		return p.neverSent()
	}
	return &locker.StoreError{Reason: locker.StoreTimeout, Err: errors.New("no answer in time")}
}

func (p *pipeline) neverSent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Abandoned++
	if p.linked == 0 {
		return &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errors.New("no connection in time")}
	}
	return &locker.StoreError{Reason: locker.StoreBusy, Certain: true, Err: errors.New("the connections were busy until the deadline")}
}

// waiting tells whether calls wait to be sent. Without any the lane is idle
// from here on, until it is woken.
func (p *pipeline) waiting(l *lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.idle = append(p.idle, l)
		return false
	}
	return true
}

// next returns the calls to send now; there may be none any more.
func (p *pipeline) next() []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	batch := p.takeLocked(maxBatch)
	if len(batch) > 0 {
		p.stats.Calls += uint64(len(batch))
		p.stats.Batches++
	}
	return batch
}

func (p *pipeline) takeLocked(most int) []*call {
	var batch []*call
	n := 0
	for ; n < len(p.queue) && len(batch) < most; n++ {
		if p.queue[n].take() {
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
	l.linked = true
	p.linked++
	p.stats.Connects++
}

// disconnected counts the end of a lane's connection.
func (p *pipeline) disconnected(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.linked = false
	p.linked--
}

// unreachable tells of a lane's failure to connect. If no lane has a
// connection, all that is queued is answered with err. Otherwise it is left to
// those that have one, and this lane is idle.
func (p *pipeline) unreachable(l *lane, err error) (idle bool) {
	p.mu.Lock()
	p.stats.Failures++
	var failed []*call
	if p.linked == 0 {
		failed = p.takeLocked(len(p.queue))
	} else {
		p.idle = slices.Insert(p.idle, 0, l)
		p.handOverLocked()
		idle = true
	}
	p.mu.Unlock()
	for _, c := range failed {
		c.fail(err)
	}
	return idle
}

// handOverLocked wakes an idle lane that has a connection. One that is busy
// looks at the queue by itself.
func (p *pipeline) handOverLocked() {
	if len(p.queue) == 0 {
		return
	}
	for i, l := range p.idle {
		if l.linked {
			p.idle = slices.Delete(p.idle, i, i+1)
			l.wake <- struct{}{}
			return
		}
	}
}

// connectAll opens a connection on every lane that has none.
func (p *pipeline) connectAll(ctx context.Context) error {
	answers := make(chan error, len(p.all))
	for _, l := range p.all {
		select {
		case l.warm <- answers:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errClosed
		}
	}
	var errs []error
	for range p.all {
		select {
		case err := <-answers:
			errs = append(errs, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errClosed
		}
	}
	return errors.Join(errs...)
}

func (p *pipeline) poolStats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Name, s.Connections, s.Queued = p.name, p.linked, len(p.queue)
	return s
}

// close cuts the connections, answers all calls and waits for the lanes.
func (p *pipeline) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.lanes.Wait()
	p.mu.Lock()
	left := p.takeLocked(len(p.queue))
	p.mu.Unlock()
	for _, c := range left {
		c.fail(&locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed})
	}
}
