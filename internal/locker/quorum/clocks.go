package quorum

import (
	"slices"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// lead is by how much the fencing tokens that are asked for are ahead of the
// members' clocks. As long as these are not further apart, and nobody else has
// been granted the key a moment ago, all members grant the very token.
const lead = time.Second

// clocks is what the members' wall clocks were when they last told. Like a
// single store's they are a source of rising numbers, and never compared with
// ours. The one in the middle speaks for all, so that one that is mad does no
// harm.
type clocks struct {
	need int

	mu   sync.Mutex
	last []reading
	step time.Duration // seen and not yet reported
}

type reading struct {
	micros int64 // 0 if there was none
	at     locker.Instant
}

func newClocks(n int) *clocks { return &clocks{need: n/2 + 1, last: make([]reading, n)} }

// learn takes in what member i has told at an instant.
func (c *clocks) learn(i int, r locker.Reading, at locker.Instant) {
	if r == (locker.Reading{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.UnixMicro > 0 {
		c.last[i] = reading{r.UnixMicro, at}
	}
	c.step += r.Step
}

// report returns the clock for the caller of the quorum, with the steps of any
// member's that were seen since the last report.
func (c *clocks) report(now locker.Instant) locker.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := locker.Reading{UnixMicro: c.middleLocked(now), Step: c.step}
	c.step = 0
	return r
}

// middleLocked returns the middle of the clocks as they must stand by now: a
// majority is not ahead of it. It is 0 until a majority has told.
func (c *clocks) middleLocked(now locker.Instant) int64 {
	stand := make([]int64, 0, len(c.last))
	for _, r := range c.last {
		if r.micros > 0 {
			stand = append(stand, r.micros+now.Sub(r.at).Microseconds())
		}
	}
	if len(stand) < c.need {
		return 0
	}
	slices.Sort(stand)
	return stand[c.need-1]
}

// floor returns the least fencing token to ask for now, which is no less than
// the claim's.
func (c *clocks) floor(least locker.Fence, now locker.Instant) locker.Fence {
	c.mu.Lock()
	defer c.mu.Unlock()
	if middle := c.middleLocked(now); middle > 0 {
		return max(least, locker.Fence(middle+lead.Microseconds()))
	}
	return least
}
