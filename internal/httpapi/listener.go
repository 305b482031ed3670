package httpapi

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// listener hands out connections that are followed, up to their limit, each
// time that there is something to read on one.
type listener struct {
	net.Listener
	conns  *conns
	ready  chan *conn
	failed chan error
	ended  chan struct{}
	end    sync.Once
}

// listen begins to accept. Close ends it.
func (cs *conns) listen(l net.Listener) *listener {
	followed := &listener{Listener: l, conns: cs, ready: make(chan *conn), failed: make(chan error, 1), ended: make(chan struct{})}
	go followed.acceptAll()
	return followed
}

const tooManyConnections = "HTTP/1.1 429 Too Many Requests\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	"this sidecar has as many connections as it may\n"

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// acceptAll accepts until the listener is closed or fails. It goes on after
// what net/http would go on after: a lack of file descriptors, mostly.
func (l *listener) acceptAll() {
	const least, most = 5 * time.Millisecond, time.Second
	pause := least
	for {
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
			pause = least
			l.admit(nc)
		case passes(err):
			time.Sleep(pause)
			pause = min(2*pause, most)
		default:
			l.failed <- err // has room: it is sent once
			return
		}
	}
}

// passes tells whether accepting may succeed later: there is no room for
// another connection now, or one was gone before it was accepted.
func passes(err error) bool {
	for _, errno := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (l *listener) admit(nc net.Conn) {
	if l.conns.open.Add(1) <= l.conns.limit {
		(&conn{Conn: nc, all: l.conns, from: l}).park()
		return
	}
	l.conns.open.Add(-1)
	_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = io.WriteString(nc, tooManyConnections)
	_ = nc.Close()
}
