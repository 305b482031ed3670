package httpapi

import (
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// confirmMost is how long an answer is watched until the kernel knows that it
// was taken. A kernel that has nothing to send acknowledges within 40 ms.
const confirmMost = settleTime

// confirm tells the journal of a grant whose answer has arrived: what settles
// that for good, the next request or the end of the connection, may be long in
// coming. Bytes that the other kernel has acknowledged, or the other process
// has read from a Unix socket, will be read unless the caller dies right now.
func (c *conn) confirm(id locker.GrantID) {
	if c.confirmed(id) {
		return
	}
	c.all.confirming.Go(func() {
		pause := time.Millisecond
		for waited := time.Duration(0); waited < confirmMost && !c.confirmed(id); waited += pause {
			time.Sleep(pause)
			pause = min(2*pause, 50*time.Millisecond)
		}
	})
}

// confirmed tells whether there is nothing more to wait for: the answer has
// arrived, or the connection has ended, which tells more.
func (c *conn) confirmed(id locker.GrantID) bool {
	state, over := c.lookAhead()
	if state == transferDone && !over {
		c.all.locks.Delivered(id)
	}
	return over || state != transferPending
}

// lookAhead asks the kernel what became of the answer, unless the connection has
// ended. To ask takes a pending reset from the socket, so that nobody else hears
// of it: it is noted in the same step.
func (c *conn) lookAhead() (state transfer, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ended || c.reset {
		return transferPending, true
	}
	raw, ok := c.Conn.(syscall.Conn)
	if !ok {
		return transferDone, false
	}
	switch state = transferState(raw); state {
	case transferBroken:
		c.ended, c.reset = true, true
		return state, true
	case transferDone: // perhaps since whoever reads has just taken the reset
		return state, hasHungUp(raw)
	}
	return state, false
}
