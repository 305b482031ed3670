package locker

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// BootTime reads CLOCK_BOOTTIME.
func BootTime() Instant { return boot.read() }

var boot = newBootClock(askBootTime, glanceAtGo)

const (
	// askAfter is for how long readings are reckoned from one that was asked for.
	askAfter = time.Millisecond
	// atOnce is what two readings in a row are apart at most. It is far below
	// any time of suspension, and far below a DriftMargin.
	atOnce = 20 * time.Microsecond
)

// bootClock asks the kernel for the boot time once in askAfter at most. That is
// a system call, which takes up to 1.5 µs, and a request reads the clock a dozen
// times. Between two it is reckoned from the clocks that Go reads without one.
//
// Boot time is ahead of the monotonic clock by all suspended time, so by the
// same until the next suspension. That moves the wall clock ahead of it too, by
// just as much, which nothing else does but setting the wall clock. So where the
// two are no further apart than they were, there was no suspension; it would
// have to be hidden by somebody who, within askAfter, sets the wall clock back by
// its length.
type bootClock struct {
	ask    func() Instant                         // the kernel
	glance func() (wall, monotonic time.Duration) // each since a moment of its own
	known  atomic.Pointer[bootReading]
}

// bootReading is how the clocks stood when the kernel was asked.
type bootReading struct {
	monotonic time.Duration
	wallAhead time.Duration // of monotonic, just before
	bootAhead time.Duration // of monotonic, less by up to atOnce
}

func newBootClock(ask func() Instant, glance func() (wall, monotonic time.Duration)) *bootClock {
	c := &bootClock{ask: ask, glance: glance}
	c.known.Store(&bootReading{})
	c.lookAnew()
	return c
}

// read never goes back: what is added to the monotonic clock stays the same
// until it is found to have been suspended.
func (c *bootClock) read() Instant {
	wall, monotonic := c.glance()
	known := c.known.Load()
	if passed := monotonic - known.monotonic; passed < 0 || passed > askAfter || (wall-monotonic-known.wallAhead).Abs() > atOnce {
		return c.lookAnew()
	}
	return Instant(monotonic + known.bootAhead)
}

// lookAnew asks the kernel.
func (c *bootClock) lookAnew() Instant {
	for patience := atOnce; ; patience *= 2 { // it may be as slow as that
		wall, before := c.glance()
		asked := time.Duration(c.ask())
		_, after := c.glance()
		if after-before > patience {
			continue // interrupted
		}
		for {
			known := c.known.Load()
			now := &bootReading{monotonic: after, wallAhead: wall - before, bootAhead: known.bootAhead}
			if ahead := asked - after; ahead > now.bootAhead+atOnce {
				now.bootAhead = ahead
			}
			if c.known.CompareAndSwap(known, now) { // else others have found out more
				return Instant(after + now.bootAhead)
			}
		}
	}
}

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2). Go's own monotonic
// clock reads CLOCK_MONOTONIC, which stands still while the machine is
// suspended (golang/go#24595).
const clockBoottime = 7

func askBootTime() Instant {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(fmt.Sprintf("clock_gettime(CLOCK_BOOTTIME): %v", errno))
	}
	return Instant(ts.Nano())
}

var processStart = time.Now()

func glanceAtGo() (wall, monotonic time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(processStart)
}
