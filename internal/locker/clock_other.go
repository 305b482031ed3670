//go:build !linux

package locker

import "time"

var processStart = time.Now()

// BootTime reads Go's monotonic clock: outside Linux there is no portable
// reading that counts suspended time.
func BootTime() Instant { return Instant(time.Since(processStart)) + 1 }
