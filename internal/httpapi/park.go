package httpapi

import (
	"maps"
	"slices"
	"time"
)

// parkAfter is for how long net/http keeps a connection that waits for its next
// request. It spends some 18 KiB on one, buffers and a stack, whatever comes
// over it; a parked one costs a sixth of that. So net/http gets connections
// only while there is something to read.
const parkAfter = 200 * time.Millisecond

// waitedLocked takes in that net/http has waited for a request for long enough.
// If nothing of one has come, the connection is to be parked. If only its first
// bytes have, net/http shall wait on (true), once for as long as for a header.
func (c *conn) waitedLocked() (again bool) {
	switch first := c.framing.begun(); {
	case c.closed || c.parked || c.from == nil:
	case first == 0:
		c.parking = true
	case first < 4 && !c.late: // which net/http looks for
		c.late = true
		return c.Conn.SetReadDeadline(time.Now().Add(headerTimeout)) == nil
	}
	return false
}

// park has the connection wait for something to read, which passes it to
// net/http as if it were new. It is closed if nothing comes for as long as the
// idle timeout, unless a grant that was told over it lasts: to a shutdown, the
// end of the connection would look as if the caller had finished with the lock.
func (c *conn) park() {
	c.idle.Store(true)
	c.setParked(true)
	_ = c.Conn.SetWriteDeadline(time.Time{}) // of the last answer: net/http may write before the next one
	c.all.attend(c)
	if !c.all.watch(c) {
		go c.await()
	}
}

// expire closes a parked connection for which nothing has come in time.
func (c *conn) expire() {
	if c.outlives() {
		c.park()
		return
	}
	c.all.leave(c)
	_ = c.Close()
}

// await waits for the first byte of a request.
func (c *conn) await() {
	for len(c.pending) == 0 && c.all.mayWait(c) && (c.readAhead() || c.outlives()) {
	}
	c.all.leave(c)
	if len(c.pending) == 0 {
		_ = c.Close()
		return
	}
	_ = c.Conn.SetReadDeadline(time.Time{})
	c.setParked(false)
	select {
	case c.from.ready <- c:
	case <-c.from.ended:
		_ = c.Close()
	}
}

func (c *conn) setParked(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = is
}

func (c *conn) isParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parked
}

// readAhead reads a byte and keeps it for Read. It is false if the connection
// has ended or been closed.
func (c *conn) readAhead() bool {
	n, err := c.Conn.Read(c.ahead[:])
	c.noteRead(c.ahead[:n], err)
	c.pending = append(c.pending, c.ahead[:n]...)
	return err == nil
}

// outlives tells whether the connection stays open though nothing has come in
// time.
func (c *conn) outlives() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.closed {
		return false
	}
	for i, t := range c.tellings {
		c.tellings[i].proven = t.proven || !c.all.locks.Lasts(t.id) // whether it arrived matters to nobody any more
	}
	c.sweepLocked()
	return len(c.tellings) > 0
}

// attend notes a connection that net/http does not know of.
func (cs *conns) attend(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.attended == nil {
		cs.attended = make(map[*conn]struct{})
	}
	cs.attended[c] = struct{}{}
}

func (cs *conns) leave(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.attended, c)
}

// openLot makes the lot in which connections wait.
func (cs *conns) openLot() *lot {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.lot = newLot()
	return cs.lot
}

// watch has the lot look after a parked connection; false if it cannot.
func (cs *conns) watch(c *conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return !cs.closing && len(c.pending) == 0 && cs.lot.add(c.Conn, time.Now().Add(cs.idle), func(expired bool) {
		if expired {
			go c.expire()
		} else {
			go c.await()
		}
	})
}

// mayWait lets a parked connection wait for the idle timeout. It is false once
// the server shuts down.
func (cs *conns) mayWait(c *conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return !cs.closing && c.Conn.SetReadDeadline(time.Now().Add(cs.idle)) == nil
}

// endParked has parked connections close themselves, now and from now on.
func (cs *conns) endParked() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closing = true
	for c := range cs.attended {
		if !c.isParked() {
			continue // somebody waits, and is answered
		}
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
		if ready := cs.lot.remove(c.Conn); ready != nil {
			ready(false)
		}
	}
}

// closeAttended closes all connections that net/http does not know of.
func (cs *conns) closeAttended() {
	cs.endParked()
	cs.endStreams()
	cs.mu.Lock()
	open := slices.DeleteFunc(slices.Collect(maps.Keys(cs.attended)), func(c *conn) bool { return c.stream != nil })
	cs.mu.Unlock()
	for _, c := range open {
		ready := cs.lot.remove(c.Conn)
		_ = c.Close()
		if ready != nil {
			ready(false)
		}
	}
}
