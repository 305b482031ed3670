package redis

import (
	"context"
	"sync"
)

// send sends a call to the server that decides on its lock, and on to another
// if that turns out to be wrong, until it is answered or ctx is over. ctx must
// have a deadline.
func (b *Backend) send(ctx context.Context, to purpose, c *call) error {
	for attempt := 0; ; attempt++ {
		n, err := b.servers.route(ctx, c)
		if err != nil {
			return err
		}
		c.node = n
		err = n.pipeline(to).do(ctx, c)
		if err == nil || !b.servers.failed(ctx, n, []stray{strayOf(c, err)}, attempt) {
			return err
		}
		c.again()
	}
}

// sendAll is send for many calls at once, none of which waits for a server that
// another needs. conclude gets every call with its error, perhaps several at
// the same time.
func (b *Backend) sendAll(ctx context.Context, to purpose, calls []*call, conclude func(*call, error)) {
	if len(calls) == 1 && !(len(calls[0].which) > 1 && b.servers.apart()) { // and so will not have to be divided
		conclude(calls[0], b.send(ctx, to, calls[0]))
		return
	}
	b.sendRound(ctx, to, calls, 0, conclude)
}

func (b *Backend) sendRound(ctx context.Context, to purpose, calls []*call, attempt int, conclude func(*call, error)) {
	_, changed := b.servers.all()
	groups := make(map[*node][]*call, 1)
	var lost []*call
	for _, c := range calls {
		n := b.servers.known(c)
		if n == nil {
			lost = append(lost, c)
			continue
		}
		c.node = n
		groups[n] = append(groups[n], c)
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	if len(lost) > 0 {
		sending.Go(func() { b.sendLater(ctx, to, lost, changed, attempt, conclude) })
	}
	for n, calls := range groups {
		sendGroup := func() { b.sendGroup(ctx, to, n, calls, attempt, conclude) }
		if len(groups) == 1 {
			sendGroup()
		} else {
			sending.Go(sendGroup)
		}
	}
}

// sendLater sends calls for which no server is known once there are others;
// changed is closed then.
func (b *Backend) sendLater(ctx context.Context, to purpose, calls []*call, changed <-chan struct{}, attempt int, conclude func(*call, error)) {
	select {
	case <-changed:
		b.sendRound(ctx, to, calls, attempt, conclude)
		return
	case <-ctx.Done():
	case <-b.closing.Done():
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range calls {
		n, err := b.servers.route(over, c)
		if err == nil {
			c.node = n
			err = n.pipeline(to).do(over, c)
		}
		conclude(c, err)
	}
}

// sendGroup sends calls to one server, and strays on in another round.
func (b *Backend) sendGroup(ctx context.Context, to purpose, n *node, calls []*call, attempt int, conclude func(*call, error)) {
	p := n.pipeline(to)
	for _, c := range calls {
		p.submit(ctx, c)
	}
	var strays []stray
	for _, c := range calls {
		err := p.await(ctx, c)
		if err == nil {
			conclude(c, nil)
			continue
		}
		s := strayOf(c, err)
		if s.detour != none {
			strays = append(strays, s)
			continue
		}
		b.servers.failed(ctx, n, []stray{s}, attempt)
		conclude(c, err)
	}
	if len(strays) == 0 {
		return
	}
	if !b.servers.failed(ctx, n, strays, attempt) {
		for _, s := range strays {
			conclude(s.call, s.err)
		}
		return
	}
	var again []*call
	for _, s := range strays {
		if s.detour == later && s.call.part != nil && len(s.call.which) > 1 && b.servers.apart() {
			again = append(again, s.call.divided()...)
			continue
		}
		s.call.again()
		again = append(again, s.call)
	}
	b.sendRound(ctx, to, again, attempt+1, conclude)
}
