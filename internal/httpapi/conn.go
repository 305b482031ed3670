package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var errCallerEnded = errors.New("the caller ended the connection before the answer")

// conns are the connections of a server.
type conns struct {
	locks Locks
	limit int64
	idle  time.Duration // how long a connection may wait for a request
	open  atomic.Int64
	hurry atomic.Bool // close without lingering

	detachAfter time.Duration

	lot     *lot           // watches those that wait; may be nil
	alarms  *alarms        // wakes streams
	streams sync.WaitGroup // what goes on for them

	confirming sync.WaitGroup // of confirm

	mu       sync.Mutex
	attended map[*conn]struct{} // those that net/http does not know of
	closing  bool               // nothing is parked any more
}

// conn follows one connection and knows which of the grants that were told
// over it have arrived. It reads what net/http reads.
type conn struct {
	net.Conn
	all     *conns
	from    *listener   // nil where connections are not parked
	idle    atomic.Bool // it waits for a request
	pending []byte      // read, and not yet taken by Read; belongs to who reads
	ahead   [1]byte
	stream  *stream // what it has become; guarded by all.mu

	mu       sync.Mutex // guards the following
	framing  framing
	ended    bool // the caller has ended its side
	reset    bool // the connection broke
	guarded  bool // an answer is due that tells of a grant
	wrote    bool // some of that answer was written
	early    bool // the last answer was written with another request behind it
	closed   bool
	parking  bool // net/http gives it up, and does not end it
	parked   bool // it is not net/http that waits for a request
	late     bool // the first bytes of a request have had more time once
	tellings []telling
	sweepAt  int
}

// telling is a grant that was told over a connection.
type telling struct {
	id     locker.GrantID
	proven bool // the answer arrived
	times  int  // how often beyond the first, all proven
}

// guard says whether the next bytes to be written tell of a grant. They are
// not written if the caller has ended the connection by then.
func (c *conn) guard(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guarded, c.wrote = on, false
}

// told takes in that the answer of a grant was written.
func (c *conn) told(t telling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // by the server, since the answer was written
		c.all.locks.Cleared(t.id)
		return
	}
	c.tellings = append(c.tellings, t)
	if len(c.tellings) >= max(c.sweepAt, leastSweep) {
		c.sweepLocked()
	}
}

func (c *conn) framingProblem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.framing.problem
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if n := copy(p, c.pending); n > 0 {
		c.pending = c.pending[n:]
		return n, nil
	}
	for {
		n, err := c.Conn.Read(p)
		if !c.noteRead(p[:n], err) {
			return n, err
		}
	}
}

// noteRead takes in what a Read returned, and tells whether to read on.
func (c *conn) noteRead(p []byte, err error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) > 0 {
		if !c.early {
			c.proveLocked()
		}
		c.framing.feed(p)
		c.late = false
	}
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
	case errors.Is(err, os.ErrDeadlineExceeded):
		return len(p) == 0 && c.idle.Load() && c.waitedLocked()
	case errors.Is(err, io.EOF):
		c.ended = true
	default:
		c.ended, c.reset = true, true
	}
	return false
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.guarded && !c.wrote && c.ended {
		c.mu.Unlock()
		return 0, errCallerEnded
	}
	c.wrote = true
	// Input that is there already cannot prove that this answer was read.
	c.early = !c.framing.quiet()
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if err != nil {
		c.mu.Lock()
		c.reset = true
		c.mu.Unlock()
	}
	return n, err
}

// CloseWrite ends our side; net/http uses it when it refuses a request.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn. Where net/http has only waited for long enough, it
// parks the connection. Else it decides what became of the answers that are
// not known to have arrived, which can take lingerTime and settleTime.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	if c.parking {
		c.parking = false
		c.mu.Unlock()
		c.park()
		return nil
	}
	c.closed = true
	tellings, ended, reset := c.tellings, c.ended, c.reset
	c.tellings = nil
	c.mu.Unlock()

	arrived := true
	if n := len(tellings); n > 0 && !tellings[n-1].proven {
		arrived = c.settle(ended, reset)
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok && (reset || !arrived) {
		_ = tcp.SetLinger(0) // what was not taken shall not arrive later
	}
	err := c.Conn.Close()
	defer c.all.open.Add(-1)
	for _, t := range tellings {
		if t.proven || arrived {
			for range t.times + 1 {
				c.all.locks.Cleared(t.id)
			}
		} else {
			c.all.locks.GiveBack(t.id)
		}
	}
	return err
}

type connKey struct{}

func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}

// connOf returns the request's connection, or nil if it is not followed.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

func noteState(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*conn); ok && state != http.StateClosed { // it may be parked, or in use again
		c.idle.Store(state == http.StateIdle)
	}
}
