package redis

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// hedge is how long one node may take to tell the table before another is
	// asked as well.
	hedge = 50 * time.Millisecond

	// tableEvery is how often the table is asked for when nothing is wrong. Nobody
	// tells of a failover, which may have lost locks that are held.
	tableEvery = 3 * time.Second

	// grudge is for how long a node that was of no use is asked last.
	grudge = 5 * time.Second
)

// follow asks for the table at the start, after trouble, though not without a
// pause, and now and then.
func (c *cluster) follow() {
	var latest time.Time
	pause := lookMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.doubt:
			timer.Reset(max(0, pause-time.Since(latest)))
			continue
		case <-timer.C:
		}
		calm := time.Since(latest) >= tableEvery
		latest = time.Now()
		if c.look() || calm {
			pause = lookMin
		} else {
			pause = min(2*pause, lookMax)
		}
		c.retire()
		if c.table.Load() == nil {
			timer.Reset(pause)
		} else {
			timer.Reset(tableEvery)
		}
	}
}

// look asks for the table, one node after the other, and takes over the first
// that comes. It says whether that is another than before.
func (c *cluster) look() (changed bool) {
	ctx, cancel := context.WithTimeout(c.ctx, 3*c.make.config.StoreTimeout)
	defer cancel()
	type answer struct {
		ranges []slotRange
		err    error
	}
	whom := c.whom()
	answers := make(chan answer, len(whom))
	ask := func(p *pipeline) {
		c.running.Go(func() {
			ranges, err := askTable(ctx, p)
			answers <- answer{ranges, err}
		})
	}
	var errs []error
	asked := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(errs) < len(whom) {
		select {
		case <-timer.C:
			if asked < len(whom) {
				ask(whom[asked])
				asked++
				timer.Reset(hedge)
			}
		case a := <-answers:
			if a.err == nil {
				return c.take(a.ranges)
			}
			errs = append(errs, a.err)
			timer.Reset(0)
		case <-ctx.Done():
			errs = append(errs, errors.New("no server of the cluster answers"))
			whom = nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = errors.Join(errs...)
	return false
}

// whom returns the connections over which to ask, the most promising first.
func (c *cluster) whom() []*pipeline {
	c.mu.Lock()
	defer c.mu.Unlock()
	var good, bad []*pipeline
	if table := c.table.Load(); table != nil {
		for _, n := range table.nodes {
			if time.Since(c.trouble[n]) < grudge {
				bad = append(bad, n.acquire)
			} else {
				good = append(good, n.acquire)
			}
		}
	}
	for _, list := range [][]*pipeline{good, bad} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return slices.Concat(good, c.seeds, bad)
}

// take takes over a table, and says whether it is another.
func (c *cluster) take(ranges []slotRange) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.table.Load()
	slices.SortFunc(ranges, func(a, b slotRange) int { return cmp.Compare(a.first, b.first) })
	t := newTable(ranges, c.atLocked)
	c.failure = nil
	if before != nil && slices.Equal(before.nodes, t.nodes) && before.owners == t.owners {
		return false
	}
	c.publishLocked(t)
	var addrs []string
	for _, n := range t.nodes {
		addrs = append(addrs, n.address.String())
	}
	c.log.Info("the cluster's slots", "servers", addrs)
	return true
}

// retire closes nodes that have had no slot for so long that nobody waits for
// an answer of theirs.
func (c *cluster) retire() {
	c.mu.Lock()
	var old []*node
	for n, since := range c.unused {
		if time.Since(since) > max(grudge, 2*c.make.config.StoreTimeout) {
			old = append(old, n)
			delete(c.unused, n)
			delete(c.trouble, n)
			delete(c.byAddr, n.address)
		}
	}
	c.mu.Unlock()
	for _, n := range old {
		n.close()
	}
}

// askTable asks one node which server has which slots.
func askTable(ctx context.Context, p *pipeline) ([]slotRange, error) {
	q := &call{plain: []any{"cluster", "slots"}}
	from := p.connector.address
	if err := p.do(ctx, q); err != nil {
		if text, _ := replyIn(err); strings.HasPrefix(text, "ERR This instance has cluster support disabled") {
			return nil, wrongKind(from, aClusterNode, aLoneServer)
		}
		return nil, err
	}
	ranges, ok := readTable(q.reply[0], from)
	if !ok {
		return nil, unreadable("the table of slots could not be read")
	}
	if len(ranges) == 0 {
		return nil, errors.New("the server at " + from.String() + " knows of no slot: it is in no cluster")
	}
	return ranges, nil
}

// readTable reads the answer to CLUSTER SLOTS of a node at from: ranges, each
// with its master and replicas.
func readTable(reply any, from Address) (ranges []slotRange, ok bool) {
	entries, ok := reply.([]any)
	if !ok {
		return nil, false
	}
	for _, entry := range entries {
		fields, _ := entry.([]any)
		if len(fields) < 3 {
			return nil, false
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		master, _ := fields[2].([]any)
		if !ok1 || !ok2 || first < 0 || last >= slotCount || first > last || len(master) < 2 {
			return nil, false
		}
		host, _ := master[0].(string) // nil where it is that of the node itself
		port, _ := master[1].(int64)
		at, ok := nodeAddress(host, strconv.FormatInt(port, 10), from)
		if !ok {
			return nil, false
		}
		ranges = append(ranges, slotRange{int(first), int(last), at})
	}
	return ranges, true
}
