package redis

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// How long to wait before connecting again; it grows from the least to the most.
const (
	resubscribeMin = 10 * time.Millisecond
	resubscribeMax = time.Second
)

// Listen implements [locker.Queue]. It has one connection to each server that
// decides on locks, whatever the process waits for: a script that wakes is told
// how many listen at its own server, and takes nobody for dead who does. It ends
// when the Backend is closed.
func (b *Backend) Listen(ctx context.Context, process string, tell func(locker.Hint)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	var listening sync.WaitGroup
	defer listening.Wait()
	e := &ears{b: b, channel: b.keys.channel(process), tell: tell, pending: make(map[*node]bool), live: make(map[*node]bool)}
	stops := make(map[*node]context.CancelFunc)
	for ctx.Err() == nil {
		nodes, changed := b.servers.all()
		for n, stop := range stops {
			if !slices.Contains(nodes, n) {
				stop()
				delete(stops, n)
			}
		}
		e.expect(nodes)
		for _, n := range nodes {
			if stops[n] == nil {
				at, stop := context.WithCancel(ctx)
				stops[n] = stop
				listening.Go(func() { e.listen(at, n) })
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// ears is what listens for a process at several servers.
type ears struct {
	b       *Backend
	channel string
	tell    func(locker.Hint)

	mu      sync.Mutex
	pending map[*node]bool // of which it is not known yet whether they can be heard
	live    map[*node]bool // heard now
	told    bool           // that hints are heard
}

// expect takes in which servers there are.
func (e *ears) expect(nodes []*node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.told {
		clear(e.pending)
		for _, n := range nodes {
			if !e.live[n] {
				e.pending[n] = true
			}
		}
	}
}

// listen listens to one server until ctx is over.
func (e *ears) listen(ctx context.Context, n *node) {
	pause := resubscribeMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		heard := false
		var publishing sync.WaitGroup
		err := hear(ctx, n.connector(), e.channel, func() {
			heard, pause = true, resubscribeMin
			e.b.lacks.granted(lackSubscribe)
			e.settle(n, true)
			publishing.Go(func() { e.b.tryPublish(n, e.channel) })
		}, func(payload string) {
			if hint, ok := readHint(payload); ok && e.passes(n, hint.Key) {
				e.tell(hint)
			}
		})
		publishing.Wait()
		e.settle(n, false)
		if !heard {
			e.b.maybeLack(lackSubscribe, n, err)
		}
		if ctx.Err() == nil {
			e.b.log.Debug("no subscription to wake-ups: trying again", "addr", n.address.String(), "err", err)
		}
		timer.Reset(pause - rand.N(pause/2))
		pause = min(2*pause, resubscribeMax)
	}
}

// settle takes in whether a server is heard. That hints are heard is told once
// none is pending, and from then on whenever one is heard again: what it had to
// say before may have been missed.
func (e *ears) settle(n *node, heard bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, n)
	if heard {
		e.live[n] = true
	} else {
		delete(e.live, n)
	}
	if len(e.live) > 0 && (!e.told && len(e.pending) == 0 || e.told && heard) {
		e.told = true
		e.tell(locker.Hint{Kind: locker.HintListening})
	}
}

// passes tells whether a hint that was heard from n is to be told. A cluster
// repeats every message at each of its servers, so only what comes from the one
// that decides on the lock counts, or from a deputy if that cannot be heard.
func (e *ears) passes(n *node, key locker.Key) bool {
	owner := e.b.servers.owner(e.b.keys.lock(key))
	if owner == n {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[owner] {
		return false
	}
	for other := range e.live {
		if other.address.Addr < n.address.Addr {
			return false
		}
	}
	return true
}

// tryPublish finds out, once, whether our user may wake others: scripts do so,
// and say nothing if they are refused. The message means nothing.
func (b *Backend) tryPublish(n *node, channel string) {
	if b.published.Swap(true) {
		return
	}
	c := &call{plain: []any{"publish", channel, "-"}}
	ctx, cancel := b.bounded(b.closing)
	defer cancel()
	err := n.acquire.do(ctx, c)
	if text, refused := replyIn(err); err != nil && !(refused && forbidden(text)) {
		b.published.Store(false)
	}
	b.maybeLack(lackPublish, n, err)
}

// publishAgain finds out whether we may by now, where it is known that we might
// not.
func (b *Backend) publishAgain(ctx context.Context, n *node) {
	if b.lacks.has(lackPublish) {
		b.maybeLack(lackPublish, n, n.acquire.do(ctx, &call{plain: []any{"publish", b.keys.channel("-"), "-"}}))
	}
}

// maybeLack takes in whether a server has refused something for want of a
// permission.
func (b *Backend) maybeLack(l lack, n *node, err error) {
	text, refused := replyIn(err)
	switch {
	case err == nil:
		b.lacks.granted(l)
	case refused && forbidden(text):
		b.lacks.denied(l, n.address)
	}
}

// readHint reads a message as line.lua sends it.
func readHint(payload string) (locker.Hint, bool) {
	if len(payload) < 2 {
		return locker.Hint{}, false
	}
	key, err := locker.ParseKey(payload[1:])
	if err != nil {
		return locker.Hint{}, false
	}
	switch payload[0] {
	case 'w':
		return locker.Hint{Kind: locker.HintWake, Key: key}, true
	case 'n':
		return locker.Hint{Kind: locker.HintNear, Key: key}, true
	}
	return locker.Hint{}, false
}
