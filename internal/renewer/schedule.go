package renewer

import (
	"container/heap"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// entry is one watched grant.
type entry struct {
	id         locker.GrantID
	due        locker.Instant
	validUntil locker.Instant
	together   time.Duration // it may go out this much before it is due
	index      int
}

// schedule is a heap of entries by when they are due, with an index by grant.
type schedule struct {
	byID    map[locker.GrantID]*entry
	ordered byDue
}

// head returns when the first entry is due.
func (s *schedule) head() (locker.Instant, bool) {
	if len(s.ordered) == 0 {
		return 0, false
	}
	return s.ordered[0].due, true
}

// put adds an entry, or replaces the grant's earlier one.
func (s *schedule) put(e entry) {
	if old := s.byID[e.id]; old != nil {
		e.index = old.index
		*old = e
		heap.Fix(&s.ordered, old.index)
		return
	}
	if s.byID == nil {
		s.byID = make(map[locker.GrantID]*entry)
	}
	s.byID[e.id] = &e
	heap.Push(&s.ordered, &e)
}

func (s *schedule) remove(id locker.GrantID) {
	if e := s.byID[id]; e != nil {
		delete(s.byID, id)
		heap.Remove(&s.ordered, e.index)
	}
}

// take returns up to most grants whose validity is over, and up to most that
// are due. Those that are due stay, to be ended when their validity is over
// unless a renewal succeeds before.
func (s *schedule) take(now locker.Instant, most int) (over, due []locker.GrantID) {
	for len(s.ordered) > 0 && len(over) < most && len(due) < most {
		e := s.ordered[0]
		switch {
		case e.validUntil <= now:
			over = append(over, e.id)
			s.remove(e.id)
		case e.due.Add(-e.together) <= now:
			due = append(due, e.id)
			e.due, e.together = e.validUntil, 0
			heap.Fix(&s.ordered, 0)
		default:
			return over, due
		}
	}
	return over, due
}

type byDue []*entry

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due < h[j].due }
func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byDue) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *byDue) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
