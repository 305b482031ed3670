//go:build !linux

package httpapi

import "net"

// tuneStream prepares a connection for a stream.
func tuneStream(nc net.Conn) {
	if small, ok := nc.(interface{ SetWriteBuffer(int) error }); ok {
		_ = small.SetWriteBuffer(streamBuffer)
	}
}
