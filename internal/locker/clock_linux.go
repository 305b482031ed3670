package locker

import (
	"fmt"
	"syscall"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2). Go's own monotonic
// clock reads CLOCK_MONOTONIC, which stands still while the machine is
// suspended (golang/go#24595).
const clockBoottime = 7

// BootTime reads CLOCK_BOOTTIME.
func BootTime() Instant {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(fmt.Sprintf("clock_gettime(CLOCK_BOOTTIME): %v", errno))
	}
	return Instant(ts.Nano())
}
