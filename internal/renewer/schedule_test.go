package renewer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestTheScheduleGivesOutWhatIsDueInOrderAndOnce(t *testing.T) {
	var s schedule
	for _, i := range rand.Perm(100) {
		due := at.Add(time.Duration(i) * time.Second)
		s.put(entry{id: locker.GrantID(i + 1), due: due, validUntil: due.Add(time.Hour)})
	}
	for i := range locker.GrantID(100) {
		now := at.Add(time.Duration(i) * time.Second)
		if head, ok := s.head(); !ok || head != now {
			t.Fatalf("head %d, want %d", head, now)
		}
		if over, due := s.take(now, 10); len(over) != 0 || !slices.Equal(due, []locker.GrantID{i + 1}) {
			t.Fatalf("over %v, due %v, want due %d", over, due, i+1)
		}
	}
	if over, due := s.take(at.Add(100*time.Second), 10); len(over)+len(due) != 0 {
		t.Errorf("given out again: over %v, due %v", over, due)
	}
}

func TestWhatWasGivenOutComesBackWhenItsValidityIsOver(t *testing.T) {
	var s schedule
	s.put(entry{id: 1, due: at, validUntil: at.Add(time.Second)})
	if _, due := s.take(at, 10); len(due) != 1 {
		t.Fatalf("due %v", due)
	}
	if over, due := s.take(at.Add(time.Second-1), 10); len(over)+len(due) != 0 {
		t.Fatalf("too early: over %v, due %v", over, due)
	}
	if over, due := s.take(at.Add(time.Second), 10); !slices.Equal(over, []locker.GrantID{1}) || len(due) != 0 {
		t.Fatalf("over %v, due %v, want it to be over", over, due)
	}
	if _, any := s.head(); any || len(s.byID) != 0 {
		t.Error("it is still there")
	}
}

func TestALeaseThatIsOverIsNeverGivenOutAsDue(t *testing.T) {
	var s schedule
	s.put(entry{id: 1, due: at.Add(-time.Minute), validUntil: at})
	if over, due := s.take(at, 10); len(over) != 1 || len(due) != 0 {
		t.Errorf("over %v, due %v", over, due)
	}
}

func TestWhatIsDueSoonGoesOutTogether(t *testing.T) {
	var s schedule
	for i := range locker.GrantID(20) {
		due := at.Add(time.Duration(i) * 100 * time.Millisecond)
		s.put(entry{id: i + 1, due: due, validUntil: due.Add(time.Minute), together: time.Second})
	}
	if _, due := s.take(at, 100); len(due) != 11 {
		t.Errorf("%d are due, want the 11 of the next second", len(due))
	}
}

func TestABatchIsBounded(t *testing.T) {
	var s schedule
	for i := range locker.GrantID(25) {
		s.put(entry{id: i + 1, due: at, validUntil: at.Add(time.Minute)})
		s.put(entry{id: i + 101, due: at, validUntil: at})
	}
	var due, over int
	for {
		o, d := s.take(at, 10)
		if len(o) > 10 || len(d) > 10 {
			t.Fatalf("%d are over and %d due at once", len(o), len(d))
		}
		if len(o)+len(d) == 0 {
			break
		}
		over, due = over+len(o), due+len(d)
	}
	if due != 25 || over != 25 {
		t.Errorf("%d were over and %d due, want 25 of each", over, due)
	}
}

func TestAnEntryReplacesTheGrantsEarlierOne(t *testing.T) {
	var s schedule
	s.put(entry{id: 1, due: at, validUntil: at.Add(time.Minute)})
	s.put(entry{id: 2, due: at.Add(time.Second), validUntil: at.Add(time.Minute)})
	s.put(entry{id: 1, due: at.Add(2 * time.Second), validUntil: at.Add(time.Minute)})
	if head, _ := s.head(); head != at.Add(time.Second) || len(s.ordered) != 2 {
		t.Errorf("head %d of %d", head, len(s.ordered))
	}
	s.remove(2)
	s.remove(2)
	s.remove(77)
	if head, _ := s.head(); head != at.Add(2*time.Second) || len(s.ordered) != 1 || len(s.byID) != 1 {
		t.Errorf("head %d of %d", head, len(s.ordered))
	}
}
