package redis

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// cluster routes each call to the node that has its slot. It follows what nodes
// say of single slots, and asks for all of them at the start, after trouble, and
// now and then.
type cluster struct {
	make  *nodes
	seeds []*pipeline // to the addresses that we were given; for questions alone
	log   *slog.Logger

	ctx     context.Context // ends when it is closed
	cancel  context.CancelFunc
	running sync.WaitGroup
	doubt   chan struct{} // something is not as we know it: look soon

	table atomic.Pointer[slotTable] // nil until it is known

	mu      sync.Mutex // held while the table is exchanged
	byAddr  map[Address]*node
	unused  map[*node]time.Time // those that have no slot, since when
	trouble map[*node]time.Time // when one was last of no use
	changed chan struct{}       // closed, and replaced, with the table
	failure error               // of the latest look
	closed  bool
}

func newCluster(all *nodes) *cluster {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{
		make: all, log: all.config.Log, ctx: ctx, cancel: cancel, doubt: make(chan struct{}, 1),
		byAddr: make(map[Address]*node), unused: make(map[*node]time.Time), trouble: make(map[*node]time.Time),
		changed: make(chan struct{}),
	}
	for _, a := range all.config.Addrs {
		c.seeds = append(c.seeds, all.pipeline("seed", all.connector(a, greetServer), 1))
	}
	c.running.Go(c.follow)
	return c
}

// route implements [servers].
func (c *cluster) route(ctx context.Context, call *call) (*node, error) {
	for {
		changed := c.change()
		if n := c.known(call); n != nil {
			return n, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.table.Load() != nil {
				return nil, notFound(errors.New("no server of the cluster has the lock's slot"))
			}
			return nil, notFound(c.failure)
		case <-c.ctx.Done():
			return nil, &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed}
		}
	}
}

// known implements [servers]. A call without a lock goes to any node.
func (c *cluster) known(call *call) *node {
	if n := call.via; n != nil {
		call.via = nil
		return n
	}
	call.asking = false
	table := c.table.Load()
	if n := table.owner(call.slot()); n != nil {
		return n
	}
	if table != nil && len(call.keys) == 0 {
		return table.nodes[0]
	}
	poke(c.doubt)
	return nil
}

// change returns a channel that is closed when the table is exchanged.
func (c *cluster) change() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *cluster) owner(lock string) *node { return c.table.Load().owner(slotOf(lock)) }

// all implements [servers].
func (c *cluster) all() ([]*node, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if table := c.table.Load(); table != nil {
		return table.nodes, c.changed
	}
	return nil, c.changed
}

func (c *cluster) apart() bool { return true }

// at returns the node at an address.
func (c *cluster) at(a Address) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atLocked(a)
}

func (c *cluster) atLocked(a Address) *node {
	n := c.byAddr[a]
	switch {
	case n != nil:
		if !c.unused[n].IsZero() { // it is used while a slot is on its way to it
			c.unused[n] = time.Now()
		}
	case c.closed:
		n = c.make.new(a)
		n.close()
	default:
		n = c.make.new(a)
		c.byAddr[a] = n
		c.unused[n] = time.Now()
	}
	return n
}

// publishLocked exchanges the table.
func (c *cluster) publishLocked(t *slotTable) {
	for _, n := range c.byAddr {
		if slices.Contains(t.nodes, n) {
			delete(c.unused, n)
		} else if c.unused[n].IsZero() {
			c.unused[n] = time.Now()
		}
	}
	c.table.Store(t)
	close(c.changed)
	c.changed = make(chan struct{})
}

// close cuts all connections and waits for all goroutines.
func (c *cluster) close() {
	c.cancel()
	c.running.Wait()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, n := range c.byAddr {
		n.close()
	}
	for _, p := range c.seeds {
		p.close()
	}
}
