package redis

import (
	"context"
	"errors"
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
// lanes. A call that finds a lane free is sent by its caller, who waits for
// nobody. Others are queued, and whatever is queued when a lane becomes free
// goes out in one write, from the lane's goroutine. Every caller leaves at its
// own deadline: those in the queue by themselves, one that is sending because
// its connection is cut.
type pipeline struct {
	name      string
	connector *connector
	timeout   time.Duration // for callers without a deadline
	replicas  int           // that must acknowledge what is written
	ids       *atomic.Uint64

	ctx    context.Context // ends with the pipeline
	cancel context.CancelFunc
	lanes  sync.WaitGroup

	mu     sync.Mutex
	queue  []*call
	idle   []*lane // those that have a connection come last
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
		p.idle = append(p.idle, l)
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
	if err := p.prepare(ctx, c); err != nil {
		return err
	}
	if l := p.borrow(); l != nil && l.sendOne(ctx, c) {
		return c.err
	}
	p.enqueue(c)
	return p.await(ctx, c)
}

// bounded gives ctx a deadline if it has none.
func (p *pipeline) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.timeout)
}

// submit queues a call, which [pipeline.await] then waits for. ctx must have a
// deadline.
func (p *pipeline) submit(ctx context.Context, c *call) {
	if err := p.prepare(ctx, c); err != nil {
		c.fail(err)
		return
	}
	p.enqueue(c)
}

// prepare fails if the caller has left already.
func (p *pipeline) prepare(ctx context.Context, c *call) error {
	c.id = strconv.FormatUint(p.ids.Add(1), 36)
	c.deadline, _ = ctx.Deadline()
	c.done = make(chan struct{})
	if ctx.Err() != nil {
		return &locker.StoreError{Reason: locker.StoreTimeout, Certain: true, Err: errors.New("the caller had left before it was sent")}
	}
	return nil
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
	if c.state.Load() == refused { // so it certainly was not sent; why is about to be told
		<-c.done
		return c.err
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
	left := p.takeLocked(len(p.queue), refused)
	p.mu.Unlock()
	for _, c := range left {
		c.fail(&locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed})
	}
}
