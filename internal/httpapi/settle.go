package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// lingerTime is how long a connection that ends from our side waits for
	// the caller's end, and settleTime how long one that has ended is given to
	// show whether the last bytes were taken.
	lingerTime = time.Second
	settleTime = 1500 * time.Millisecond
)

// settle finds out whether the answers that were written last have arrived.
func (c *conn) settle(ended, reset bool) bool {
	switch {
	case reset:
		return false
	case ended:
		return c.taken(settleTime)
	case c.idle.Load() || c.all.hurry.Load():
		// The server shuts down: it closes one connection after the other.
		return c.taken(0)
	}
	// Our side ends first, so that the caller will end its own once it has
	// read the answer, or the kernel resets it if it cannot.
	_ = c.CloseWrite()
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
	var scrap [512]byte
	for {
		_, err := c.Conn.Read(scrap[:])
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return c.taken(settleTime)
		case errors.Is(err, net.ErrClosed):
			return true
		default:
			return false
		}
	}
}

// taken waits for at most so long until the kernel knows whether the other side
// has taken all that was written. If that does not show, it has not; save that
// no time to wait means the benefit of the doubt.
func (c *conn) taken(most time.Duration) bool {
	raw, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	began := time.Now()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		switch transferState(raw) {
		case transferDone:
			return true
		case transferBroken:
			return false
		}
		if time.Since(began) > most {
			return most == 0
		}
		time.Sleep(pause)
	}
}

// transfer is what a kernel knows of the bytes that were written.
type transfer int

const (
	transferPending transfer = iota
	transferDone             // all were taken by the other side
	transferBroken           // the other side reset the connection
)

// settled waits until every connection is closed and what was told over it is
// settled. net/http does not wait for a Close that another goroutine has begun.
func (cs *conns) settled(ctx context.Context) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for cs.open.Load() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cs.streams.Wait()
	return nil
}
