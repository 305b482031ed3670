//go:build unix

package redis

import "syscall"

// quiet tells whether an idle connection can be used. One that the server has
// closed cannot, nor one on which something arrives unasked: that is the
// answer to a request that nobody waits for any more.
func (w *wire) quiet() bool {
	if w.raw == nil {
		return true
	}
	alive := false
	err := w.raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		alive = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR
	})
	return err == nil && alive
}
