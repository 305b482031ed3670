package httpapi

import "github.com/locksidecar/locksidecar/internal/locker"

// leastSweep is how many tellings a connection remembers before it looks which
// are over, and unprovenMax how many answers a caller that sends its requests
// ahead of the answers may leave unproven.
const (
	leastSweep  = 32
	unprovenMax = 16
)

// proveLocked takes in that all answers so far have arrived. A grant that was
// told more than once is kept once.
func (c *conn) proveLocked() {
	c.proveUpToLocked(len(c.tellings))
}

func (c *conn) proveUpToLocked(end int) {
	for i := end - 1; i >= 0 && !c.tellings[i].proven; i-- {
		c.tellings[i].proven = true
	}
}

// sweepLocked forgets grants that are over, so that a connection over which
// locks come and go for months does not remember them all. It runs after twice
// as many tellings as the last one left.
func (c *conn) sweepLocked() {
	c.proveUpToLocked(len(c.tellings) - unprovenMax)
	kept := c.tellings[:0]
	seen := make(map[locker.GrantID]int)
	for _, t := range c.tellings {
		if !t.proven {
			kept = append(kept, t)
			continue
		}
		if i, again := seen[t.id]; again {
			kept[i].times += t.times + 1
			continue
		}
		if !c.all.locks.Lasts(t.id) {
			for range t.times + 1 {
				c.all.locks.Cleared(t.id)
			}
			continue
		}
		seen[t.id] = len(kept)
		kept = append(kept, t)
	}
	clear(c.tellings[len(kept):])
	c.tellings = kept
	c.sweepAt = 2 * len(kept)
}
