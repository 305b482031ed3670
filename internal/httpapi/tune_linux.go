package httpapi

import (
	"net"
	"syscall"
	"time"
)

const (
	// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7).
	tcpUserTimeout = 18
	// unheardFor is how long a caller's kernel may fail to acknowledge what is
	// sent to it, which is something every commentEvery.
	unheardFor = 15 * time.Second
)

// tuneStream prepares a connection for a stream. A small buffer shows sooner
// that nobody reads, and costs less; a caller whose machine has gone without a
// word is noticed though there is always room in the buffer.
func tuneStream(nc net.Conn) {
	if small, ok := nc.(interface{ SetWriteBuffer(int) error }); ok {
		_ = small.SetWriteBuffer(streamBuffer)
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unheardFor.Milliseconds()))
		})
	}
}
