package httpapi

import (
	"syscall"
	"unsafe"
)

// transferState asks the kernel what became of the bytes written to a socket.
//
// SIOCOUTQ (TIOCOUTQ for sockets) counts, on TCP, what the other kernel has not
// acknowledged, and on Unix sockets what the other process has not read. A
// reset that arrives after an orderly end is no error of reading: it shows as
// the socket's pending error alone.
func transferState(sc syscall.Conn) transfer {
	raw, err := sc.SyscallConn()
	if err != nil {
		return transferDone
	}
	state := transferPending
	err = raw.Control(func(fd uintptr) {
		if pending, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || pending != 0 {
			state = transferBroken
			return
		}
		var left int32
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
		if errno != 0 || left == 0 {
			state = transferDone
		}
	})
	if err != nil {
		return transferDone // closed by us
	}
	return state
}
