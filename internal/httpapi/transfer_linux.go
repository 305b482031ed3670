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
		// In this order: where a reset has emptied the queue, the error is there
		// before.
		var left int32
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
		if pending, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || pending != 0 {
			state = transferBroken
		} else if errno != 0 || left == 0 {
			state = transferDone
		}
	})
	if err != nil {
		return transferDone // closed by us
	}
	return state
}

// hasHungUp tells whether the other side has ended the connection. Unlike a
// Read it takes nothing from the socket.
func hasHungUp(sc syscall.Conn) (is bool) {
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		const hangUp = 0x2000 | 0x10 | 0x8 // POLLRDHUP, POLLHUP, POLLERR
		ask := struct {
			fd              int32
			events, revents int16
		}{fd: int32(fd), events: 0x2000}
		var now syscall.Timespec
		_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&ask)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		is = ask.revents&hangUp != 0
	})
	return is || err != nil
}
