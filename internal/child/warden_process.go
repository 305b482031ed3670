package child

import (
	"encoding/binary"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// IsWarden tells whether this process was started to be a warden. If so, main
// calls [BeWarden] and does nothing else.
func IsWarden() bool { return len(os.Args) == 1 && os.Args[0] == wardenName }

// BeWarden serves the process that has started this one, until it is dismissed
// or has ended the command. It returns the exit code.
func BeWarden() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	ring, err := newAlarm()
	if err != nil {
		return 1
	}
	in, err := openInbox(3)
	if err != nil {
		return 1
	}
	for {
		select {
		case <-in.filled:
		case <-ring.C:
		}
		// One that was stopped finds both: what it was told counts, not what it
		// knew.
		i, open := in.last()
		switch {
		case !open: // the master has ended
			i.endAll()
			return 0
		case i.At == 0: // nothing has been told yet
		case locker.BootTime() >= i.At:
			i.endAll()
			return 0
		case ring.set(i.At) != nil:
			return 1
		}
	}
}

// inbox is a warden's end of the pipe.
type inbox struct {
	fd     int
	filled chan struct{} // there is something to read, or the other end is closed

	mu     sync.Mutex
	latest instruction
	closed bool
}

func openInbox(fd int) (*inbox, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	raw, err := os.NewFile(uintptr(fd), "orders").SyscallConn()
	if err != nil {
		return nil, err
	}
	in := &inbox{fd: fd, filled: make(chan struct{}, 1)}
	go func() { // ends with the process, or once the other end is closed
		_ = raw.Read(func(uintptr) bool {
			_, open := in.last()
			select {
			case in.filled <- struct{}{}:
			default:
			}
			return !open
		})
	}()
	return in, nil
}

// last returns the last instruction that was sent. open is false once the
// sender has ended.
func (in *inbox) last() (i instruction, open bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.closed {
		var frame [instructionSize]byte // which comes whole, as pipe(7) has it
		n, err := syscall.Read(in.fd, frame[:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return in.latest, true
		}
		var next instruction
		if err != nil || n == 0 {
			in.closed = true
		} else if _, err := binary.Decode(frame[:n], binary.NativeEndian, &next); err != nil {
			in.closed = true
		} else {
			in.latest = next
		}
	}
	return in.latest, false
}

// concerns tells whether the group is to be killed, and whether the master's
// other descendants are: only while the master is the parent of this process,
// which is its child. Once it has ended, its number is another's, and its
// children are among those of process 1.
func (i instruction) concerns(parent int) (group, others bool) {
	// Other numbers than these mean our own group, or everybody.
	return i.Group > 1, i.Master > 1 && int(i.Master) == parent
}

// endAll kills what is concerned, until nothing is left or it is in vain.
func (i instruction) endAll() {
	f := &family{leader: int(i.Group), known: &warden{pid: os.Getpid()}}
	for pause := time.Millisecond; pause < time.Second; pause *= 2 {
		group, others := i.concerns(os.Getppid())
		if !group && !others {
			return
		}
		if group {
			_ = syscall.Kill(-f.leader, syscall.SIGKILL)
		}
		master := 0
		if others {
			master = int(i.Master)
		}
		if !f.killDescendants(master) {
			return
		}
		time.Sleep(pause)
	}
}
