package redis

import (
	"net"
	"syscall"
)

// wire is a network connection that knows whether anything has been sent over
// it, which decides whether a request that failed can have been executed.
//
// It hides the system connection from the driver, which would otherwise look
// for itself whether the connection is alive; [wire.quiet] does that.
type wire struct {
	net.Conn
	raw syscall.RawConn // beneath TLS; nil where there is none

	guard replyGuard

	// sent is set once the kernel has taken bytes. It belongs to the
	// goroutine that uses the connection.
	sent bool
}

// newWire wraps conn, the stream to the server, and beneath, what carries it.
func newWire(conn, beneath net.Conn) *wire {
	w := &wire{Conn: conn}
	if s, ok := beneath.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn() // fails on a closed connection, which the first use shows
	}
	return w
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if n > 0 {
		w.sent = true
	}
	return n, err
}

// Read implements net.Conn. It fails for replies that announce more than the
// driver should make room for.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if tooMuch := w.guard.feed(p[:n]); tooMuch != nil {
		return 0, tooMuch
	}
	return n, err
}
