package locker_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// book holds what was reported in a soak.
type book struct {
	holds lockertest.Checker

	mu    sync.Mutex
	wipes []locker.Instant // in order
}

func (b *book) wiped(at locker.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wipes = append(b.wipes, at)
}

// wipedWithin tells whether the store lost its data in [from, to].
func (b *book) wipedWithin(from, to locker.Instant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearch(b.wipes, from)
	return i < len(b.wipes) && b.wipes[i] <= to
}

// check judges all reports. Only what a loss of the store's data explains is
// forgiven: the loss came between the two grants. A grant is executed within
// the store timeout before it is reported.
func (b *book) check(s *soak) {
	s.t.Helper()
	violations, allowed := 0, 0
	for _, v := range b.holds.Violations() {
		allowed++
		switch v.Kind {
		case lockertest.Overlap:
			if b.wipedWithin(v.First.From.Add(-storeTimeout), v.Second.From) {
				continue
			}
		case lockertest.FenceFell:
			if b.wipedWithin(v.Second.From.Add(-storeTimeout), v.Second.From) {
				continue
			}
		}
		allowed--
		violations++
		s.t.Error(v)
	}
	figures.Count(figures.Grants, figures.Virtual, b.holds.Holds())
	figures.Count(figures.Windows, figures.Virtual, b.holds.Holds())
	figures.Count(figures.Violations, figures.Virtual, violations)
	figures.Count(figures.Allowed, figures.Virtual, allowed)
}

// hold is one worker's view of its grant: what it was told so far.
type hold struct {
	*worker
	id      locker.GrantID
	cleared bool // the connection over which it was told has closed

	key    locker.Key
	fence  locker.Fence
	from   locker.Instant
	until  locker.Instant
	maxTTL time.Duration
	over   bool
}

// told takes in a report that the lock is held, and judges it.
func (h *hold) told(st locker.Status) {
	now := h.world.now()
	_, left, _ := h.store.Value(h.key)
	if h.at.letGo(h.cleared) != 0 {
		return // it may have been dropped since
	}
	switch {
	case st.Fence != h.fence:
		h.t.Errorf("%s holds fence %d and is told %d", h.name, h.fence, st.Fence)
	case st.ValidFor <= 0 || st.ValidUntil.Sub(now) != st.ValidFor:
		h.t.Errorf("%s is told at %d that it holds until %d, for %v", h.name, now, st.ValidUntil, st.ValidFor)
	}
	h.maxTTL = max(h.maxTTL, st.TTL)
	h.until = st.ValidUntil
	if !h.book.wipedWithin(h.from.Add(-storeTimeout), now) {
		if left < st.ValidFor {
			h.t.Errorf("%s is told that it holds %q for %v, the store keeps it for %v", h.name, h.key, st.ValidFor, left)
		}
	} else if w := h.book.firstWipe(h.from, now); w != 0 && st.ValidUntil > w.Add(h.maxTTL) {
		h.t.Errorf("%s was renewed though the store had lost the lock", h.name)
	}
}

// firstWipe returns the first loss of data in (from, to], or 0.
func (b *book) firstWipe(from, to locker.Instant) locker.Instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearch(b.wipes, from+1)
	if i < len(b.wipes) && b.wipes[i] <= to {
		return b.wipes[i]
	}
	return 0
}

// ends records the hold: from now on the worker counts on nothing. If it is the
// sidecar that has died, the worker counts on what it was told last.
func (h *hold) ends() {
	if h.over {
		return
	}
	h.over = true
	until := h.until
	if !h.at.isDead() {
		until = min(until, h.world.now())
	}
	if end := h.at.letGo(h.cleared); end != 0 {
		until = min(until, end)
	}
	h.clear()
	h.book.holds.Record(lockertest.Hold{Key: h.key, Holder: h.name, Fence: h.fence, From: h.from, Until: until})
}

// tally counts outcomes, to see that a soak has met them all.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[string]int)
	}
	t.n[outcome]++
}

func (t *tally) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.n)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, t.n[name]))
	}
	return strings.Join(parts, " ")
}
