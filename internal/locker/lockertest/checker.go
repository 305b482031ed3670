package lockertest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Hold is an interval in which somebody reported to hold a lock: from the
// answer that granted it to, exclusively, the last moment in which the
// reporter would still have called it valid.
type Hold struct {
	Key         locker.Key
	Holder      string
	Fence       locker.Fence
	From, Until locker.Instant
}

// Checker collects the holds that processes of one machine report, whose
// clocks are one and the same, and finds two valid holders of one key. Its
// zero value is ready; it is safe for concurrent use.
type Checker struct {
	mu    sync.Mutex
	holds map[locker.Key][]*Hold
}

// Record adds a hold that is over.
func (c *Checker) Record(h Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds == nil {
		c.holds = make(map[locker.Key][]*Hold)
	}
	c.holds[h.Key] = append(c.holds[h.Key], &h)
}

// Begin adds a hold that lasts until end is called. One that is never ended
// counts as lasting for ever. Only the first call of end counts.
func (c *Checker) Begin(key locker.Key, holder string, fence locker.Fence, from locker.Instant) (end func(until locker.Instant)) {
	h := &Hold{Key: key, Holder: holder, Fence: fence, From: from, Until: math.MaxInt64}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds == nil {
		c.holds = make(map[locker.Key][]*Hold)
	}
	c.holds[key] = append(c.holds[key], h)
	return func(until locker.Instant) {
		c.mu.Lock()
		defer c.mu.Unlock()
		h.Until = min(h.Until, until)
	}
}

// Violation is a breach of what a lock promises, between two holds of a key.
type Violation struct {
	Kind          ViolationKind
	First, Second Hold // in the order in which they began
}

// ViolationKind says what was breached.
type ViolationKind string

const (
	Overlap       ViolationKind = "two valid holders"
	FenceRepeated ViolationKind = "fencing token repeated"
	FenceFell     ViolationKind = "fencing token fell"
)

func (v Violation) String() string {
	return fmt.Sprintf("%s on %q: %s then %s", v.Kind, v.First.Key, v.First.describe(), v.Second.describe())
}

func (h Hold) describe() string {
	until := "(never ended)"
	if h.Until != math.MaxInt64 {
		until = fmt.Sprintf("%d", h.Until)
	}
	return fmt.Sprintf("%s with fence %d in [%d, %s)", h.Holder, h.Fence, h.From, until)
}

// Holds returns how many holds were reported.
func (c *Checker) Holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, holds := range c.holds {
		n += len(holds)
	}
	return n
}

// Violations returns what is wrong with the holds so far, by key and time.
// Each hold is blamed at most once of each kind.
func (c *Checker) Violations() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Violation
	for _, key := range slices.Sorted(maps.Keys(c.holds)) {
		holds := make([]Hold, len(c.holds[key]))
		for i, h := range c.holds[key] {
			holds[i] = *h
		}
		found = append(found, violations(holds)...)
	}
	return found
}

// violations sweeps the holds of one key.
func violations(holds []Hold) []Violation {
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Fence, b.Fence))
	})
	var found []Violation
	var last, highest Hold // what ends last, and what has the greatest fence, of those that began before
	for i, h := range holds {
		if i > 0 {
			switch {
			case h.Fence == highest.Fence:
				found = append(found, Violation{FenceRepeated, highest, h})
			case h.Fence < highest.Fence:
				found = append(found, Violation{FenceFell, highest, h})
			}
			if h.From < last.Until && h.From < h.Until {
				found = append(found, Violation{Overlap, last, h})
			}
		}
		if i == 0 || h.Fence > highest.Fence {
			highest = h
		}
		if h.From < h.Until && h.Until > last.Until {
			last = h
		}
	}
	return found
}

// maxShown is how many violations Check prints; one fault often causes many.
const maxShown = 10

// Check reports every violation as an error of t.
func (c *Checker) Check(t T) {
	t.Helper()
	found := c.Violations()
	for _, v := range found[:min(len(found), maxShown)] {
		t.Errorf("%v", v)
	}
	if len(found) > maxShown {
		t.Errorf("and %d violations more", len(found)-maxShown)
	}
}
