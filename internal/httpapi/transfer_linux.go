package httpapi

import (
	"syscall"
	"unsafe"
)

const (
	tcpClose = 7 // TCP_CLOSE of include/net/tcp_states.h
	siocoutq = syscall.TIOCOUTQ
)

// transferState asks the kernel what became of the bytes written to a socket.
// finished says that our side has been ended; a TCP socket is closed by the
// other side's end then, which tells nothing.
//
// SIOCOUTQ counts, on TCP, what the other kernel has not acknowledged, and on
// Unix sockets what the other process has not read. A reset that arrives after
// an orderly end does not show as an error of reading, only as the socket's
// pending error and, on TCP, as its state.
func transferState(sc syscall.Conn, network string, finished bool) transfer {
	raw, err := sc.SyscallConn()
	if err != nil {
		return transferDone // closed by us
	}
	state := transferPending
	err = raw.Control(func(fd uintptr) {
		if pending, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || pending != 0 {
			state = transferBroken
			return
		}
		if network == "tcp" {
			switch {
			case finished && tcpState(fd) == tcpClose:
				state = transferDone
				return
			case tcpState(fd) == tcpClose:
				state = transferBroken
				return
			}
		}
		var left int32
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, siocoutq, uintptr(unsafe.Pointer(&left)))
		if errno != 0 || left == 0 {
			state = transferDone
		}
	})
	if err != nil {
		return transferDone
	}
	return state
}

// tcpState returns the first byte of struct tcp_info, or 0.
func tcpState(fd uintptr) byte {
	var state byte
	size := uint32(1)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&state)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return state
}
