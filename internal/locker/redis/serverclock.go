package redis

import (
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// drift bounds the rate at which the two clocks may part, as a divisor of
	// the time elapsed: crystals and the slewing of NTP stay below 0.1 %.
	drift = 1000

	// stepThreshold is by how much a reading must contradict what is known to
	// count as a step of the server's clock.
	stepThreshold = 5 * time.Millisecond

	// maxMicros is the greatest time that Lua's numbers hold exactly.
	maxMicros = 1<<53 - 1
)

// serverClock translates our instants into a server's wall clock, so that the
// server itself can refuse to execute a request after its time. It knows the
// difference of the clocks, theirs − ours, as an interval: a server's reading
// was made between our sending of the request and our receipt of the answer.
type serverClock struct {
	mu     sync.Mutex
	known  bool
	lo, hi int64 // nanoseconds
	at     locker.Instant
	step   time.Duration // seen and not yet reported

	latest   time.Duration // step that was seen, however it was reported
	latestAt locker.Instant
}

// reading is the server's clock in µs, which was read between sent and
// received.
type reading struct {
	micros         int64
	sent, received locker.Instant
}

// interval returns the bounds that the reading alone sets.
func (r reading) interval() (lo, hi int64) {
	const resolution = int64(time.Microsecond) - 1
	theirs := r.micros * int64(time.Microsecond)
	return theirs - int64(r.received), theirs + resolution - int64(r.sent)
}

// connected learns from the first reading over a new connection. Behind the
// same address there may be another server now, so nothing of what was known
// is kept; that it has changed is told like a step.
func (c *serverClock) connected(r reading) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	step = c.compareLocked(r)
	c.lo, c.hi = r.interval()
	return step
}

// observe narrows the interval by a reading, or starts anew from it if the
// clock has stepped; it then returns by how much.
func (c *serverClock) observe(r reading) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.known
	step = c.compareLocked(r)
	lo, hi := r.interval()
	if first || lo > c.hi || hi < c.lo {
		c.lo, c.hi = lo, hi
		return step
	}
	c.lo, c.hi = max(c.lo, lo), min(c.hi, hi)
	return step
}

// compareLocked ages what is known to the time of the reading and returns the
// step that lies between them, if there is one.
func (c *serverClock) compareLocked(r reading) time.Duration {
	defer func() { c.known, c.at = true, max(c.at, r.received) }()
	if !c.known {
		return 0
	}
	c.lo, c.hi = c.agedLocked(r.received)
	lo, hi := r.interval()
	if lo <= c.hi+int64(stepThreshold) && hi >= c.lo-int64(stepThreshold) {
		return 0
	}
	step := time.Duration((lo/2 + hi/2) - (c.lo/2 + c.hi/2))
	c.step += step
	c.latest, c.latestAt = step, r.received
	return step
}

// lately returns the latest step, if it is not long ago.
func (c *serverClock) lately(now locker.Instant) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == 0 || now.Sub(c.latestAt) > stepTold {
		return 0
	}
	return c.latest
}

// agedLocked returns the interval as it is at now: wider by the drift since
// it was learned.
func (c *serverClock) agedLocked(now locker.Instant) (lo, hi int64) {
	wider := int64(max(0, now.Sub(c.at))) / drift
	return c.lo - wider, c.hi + wider
}

// translate returns, in µs of the server's clock, a time that certainly comes
// no later than the instant: what the server refuses to execute after the one
// is not executed after the other. As long as nothing is known that is 0, and
// everything is refused.
func (c *serverClock) translate(i, now locker.Instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	lo, _ := c.agedLocked(now)
	const nanos = int64(time.Microsecond)
	return min(max(int64(i)/nanos+lo/nanos-1, 0), maxMicros)
}

// takeStep returns the steps seen since it was last called.
func (c *serverClock) takeStep() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	step := c.step
	c.step = 0
	return step
}
