package redis

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"
)

// failed implements [servers]. A node that says who has a slot is believed at
// once; when one is of no use, or cannot say now, it waits for the table to
// change, or for a while.
func (c *cluster) failed(ctx context.Context, n *node, strays []stray, attempt int) bool {
	changed := c.change()
	if unserved(strays) || cutOff(strays) {
		c.mistrust(n)
	}
	if !astray(strays) || c.ctx.Err() != nil {
		return false
	}
	wait := attempt >= 8 // nodes that name each other
	for _, s := range strays {
		text, _ := replyIn(s.err)
		switch slot, to, ok := readRedirection(text, n.address); {
		case s.detour == moved && ok:
			c.move(slot, to)
			s.call.fully = false
		case s.detour == asked && ok:
			c.redirect(s.call, n, to)
		default:
			s.call.fully = false
			wait = wait || c.table.Load().owner(s.call.slot()) == n
		}
	}
	if wait {
		return waitForChange(ctx, changed, attempt)
	}
	return ctx.Err() == nil
}

// cutOff tells whether a node has said that it does not see most of the others.
func cutOff(strays []stray) bool {
	for _, s := range strays {
		if text, _ := replyIn(s.err); strings.HasPrefix(text, "CLUSTERDOWN") {
			return true
		}
	}
	return false
}

// redirect has a call sent to the node to which its slot is on the way. n has
// said that the lock is not there; but it may have a companion, as the line, and
// made anew elsewhere that would stand in the way of the one that comes. So
// whoever may make any asks n for all of them first, and waits until none is
// left there.
func (c *cluster) redirect(call *call, n *node, to Address) {
	if call.companions != nil && !call.fully {
		call.fully, call.asking = true, false
		call.via = n
		return
	}
	call.fully = false
	call.asking = true
	call.via = c.at(to)
}

// move takes in that another node has a slot.
func (c *cluster) move(slot int, to Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if table := c.table.Load(); table != nil {
		n := c.atLocked(to)
		if table.owner(slot) != n {
			c.publishLocked(table.with(slot, n))
		}
	}
	poke(c.doubt)
}

// mistrust takes in that a node is of no use, and has the others asked.
func (c *cluster) mistrust(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble[n] = time.Now()
	poke(c.doubt)
}

// readRedirection reads "MOVED 3999 127.0.0.1:6381", or ASK, from a node at
// from. Without a host it means its own.
func readRedirection(text string, from Address) (slot int, to Address, ok bool) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return 0, Address{}, false
	}
	slot, err := strconv.Atoi(words[1])
	if err != nil || slot < 0 || slot >= slotCount {
		return 0, Address{}, false
	}
	colon := strings.LastIndexByte(words[2], ':') // an IPv6 address has no brackets here
	if colon < 0 {
		return 0, Address{}, false
	}
	to, ok = nodeAddress(words[2][:colon], words[2][colon+1:], from)
	return slot, to, ok
}

// nodeAddress makes an address of what a node at from says of another.
func nodeAddress(host, port string, from Address) (Address, bool) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Address{}, false
	}
	if host == "" || host == "?" {
		own, err := from.host()
		if err != nil {
			return Address{}, false
		}
		host = own
	}
	return TCP(net.JoinHostPort(host, port)), true
}
