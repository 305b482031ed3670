package httpapi

import (
	"io"
	"net"
	"time"
)

// listener hands out connections that are followed, up to their limit.
type listener struct {
	net.Listener
	conns *conns
}

const tooManyConnections = "HTTP/1.1 429 Too Many Requests\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	"this sidecar has as many connections as it may\n"

// Accept implements net.Listener. Errors pass unchanged: net/http goes on
// after those that are temporary, such as a lack of file descriptors.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.conns.open.Add(1) <= l.conns.limit {
			return &conn{Conn: nc, all: l.conns}, nil
		}
		l.conns.open.Add(-1)
		_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.WriteString(nc, tooManyConnections)
		_ = nc.Close()
	}
}
