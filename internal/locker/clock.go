package locker

import "time"

// Instant is a reading of this machine's boot-time clock: it never steps and,
// unlike Go's monotonic clock, it also counts the time in which the machine
// was suspended. Instants are only ever compared with Instants of the same
// machine and boot.
type Instant int64

// Clock reads the present Instant.
type Clock func() Instant

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time that has passed from earlier to i.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// Milliseconds returns the reading in whole milliseconds, rounded down.
func (i Instant) Milliseconds() int64 { return int64(i) / int64(time.Millisecond) }

// DriftMargin is taken off every TTL to get the time for which we rely on a
// lease: it covers clocks that do not run at the same rate, and the store's
// rounding.
func DriftMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
