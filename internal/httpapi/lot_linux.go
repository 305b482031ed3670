package httpapi

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// lot watches any number of connections on one goroutine, until something can
// be read from them or they end. A goroutine for each, waiting in Read, costs
// 4 KiB.
type lot struct {
	epoll *os.File
	raw   syscall.RawConn
	over  sync.WaitGroup

	mu    sync.Mutex
	spots map[int32]spot // by file descriptor; nil once closed
}

// spot is one connection that is watched.
type spot struct {
	until time.Time          // zero for ever
	ready func(expired bool) // called once, and must not block
}

// lookEvery is how late a connection may be found to have waited for too long.
const lookEvery = time.Second

// newLot returns nil if the system has none.
func newLot() *lot {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	// Nonblocking, it is waited for as a socket is, without a thread.
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil
	}
	l := &lot{epoll: os.NewFile(uintptr(fd), "epoll"), spots: make(map[int32]spot)}
	if l.raw, err = l.epoll.SyscallConn(); err != nil {
		_ = l.epoll.Close()
		return nil
	}
	l.over.Go(l.watch)
	return l
}

// add has ready called once something can be read from the connection, it has
// ended, or that has not come about by then. False means that it is not
// watched.
func (l *lot) add(nc net.Conn, until time.Time, ready func(expired bool)) (added bool) {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spots == nil {
		return false
	}
	withDescriptor(nc, func(fd int32) {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLONESHOT, Fd: fd}
		added = l.control(syscall.EPOLL_CTL_ADD, fd, &event) == nil
		if added {
			l.spots[fd] = spot{until, ready}
		}
	})
	return added
}

// remove ends the watch over a connection and returns its function, which will
// not be called any more; nil if it has been, or will be.
func (l *lot) remove(nc net.Conn) (ready func(expired bool)) {
	if l == nil {
		return nil
	}
	withDescriptor(nc, func(fd int32) {
		s, _ := l.take(fd)
		ready = s.ready
	})
	return ready
}

// take ends the watch over what has the file descriptor.
func (l *lot) take(fd int32) (spot, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.spots[fd]
	if ok {
		delete(l.spots, fd)
		_ = l.control(syscall.EPOLL_CTL_DEL, fd, nil) // only in vain if it is closed
	}
	return s, ok
}

func (l *lot) control(op int, fd int32, event *syscall.EpollEvent) (err error) {
	if outer := l.raw.Control(func(epoll uintptr) { err = syscall.EpollCtl(int(epoll), op, int(fd), event) }); outer != nil {
		return outer
	}
	return err
}

// watch calls ready functions until the lot is closed.
func (l *lot) watch() {
	var events [64]syscall.EpollEvent
	for {
		n := 0
		_ = l.epoll.SetReadDeadline(time.Now().Add(lookEvery))
		err := l.raw.Read(func(epoll uintptr) bool {
			n, _ = syscall.EpollWait(int(epoll), events[:], 0) // -1 if it was interrupted: look again
			return n != 0
		})
		if err != nil && !os.IsTimeout(err) {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if s, ok := l.take(e.Fd); ok {
				s.ready(false)
			}
		}
		if err != nil {
			l.expire(time.Now())
		}
	}
}

// expire looks for those that have waited for too long.
func (l *lot) expire(now time.Time) {
	l.mu.Lock()
	var expired []int32
	for fd, s := range l.spots {
		if !s.until.IsZero() && now.After(s.until) {
			expired = append(expired, fd)
		}
	}
	l.mu.Unlock()
	for _, fd := range expired {
		if s, ok := l.take(fd); ok {
			s.ready(true)
		}
	}
}

// close ends the lot, and calls ready for all that it watches.
func (l *lot) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	spots := l.spots
	l.spots = nil
	l.mu.Unlock()
	_ = l.epoll.Close()
	l.over.Wait()
	for _, s := range spots {
		s.ready(false)
	}
}

func withDescriptor(nc net.Conn, f func(fd int32)) {
	if c, ok := nc.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int32(fd)) })
		}
	}
}
