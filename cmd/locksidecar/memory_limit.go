package main

import (
	"math"
	"runtime/debug"
)

// What the Go runtime may use before it collects more often than it otherwise
// would, which is at twice of what is live. With the default settings, as many
// waiters and locks as may be, and thousands of idle connections, are live in
// less.
const (
	memoryLimit     = 52 << 20
	bytesPerWaiter  = 16 << 10
	bytesPerHeld    = 2 << 10
	defaultWaiters  = 2000
	defaultHeldMost = 10_000
)

// limitMemory has a burst of requests leave less garbage behind. GOMEMLIMIT
// overrides it.
func limitMemory(s Settings) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	more := max(0, s.MaxWaiters-defaultWaiters)*bytesPerWaiter + max(0, s.MaxHeld-defaultHeldMost)*bytesPerHeld
	debug.SetMemoryLimit(int64(memoryLimit + more))
}
