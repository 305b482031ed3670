package child

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// alarm rings at an instant of the boot-time clock, at once if that has
// passed. Go's own timers stand still while the machine is suspended.
type alarm struct {
	C      chan struct{} // a ring that nobody has heard yet is not repeated
	timer  *os.File
	closed sync.WaitGroup
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	a := &alarm{C: make(chan struct{}, 1), timer: os.NewFile(uintptr(fd), "timerfd")}
	a.closed.Go(func() {
		for {
			var rings [8]byte
			if _, err := a.timer.Read(rings[:]); err != nil {
				return // closed
			}
			select {
			case a.C <- struct{}{}:
			default:
			}
		}
	})
	return a, nil
}

// set has it ring at an instant instead of what was set before.
func (a *alarm) set(at locker.Instant) error {
	raw, err := a.timer.SyscallConn()
	if err != nil {
		return err
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))} // 0 would set nothing
	var failure error
	if err := raw.Control(func(fd uintptr) {
		failure = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	}); err != nil {
		return err
	}
	return failure
}

func (a *alarm) close() {
	_ = a.timer.Close()
	a.closed.Wait()
}
