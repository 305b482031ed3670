package lockertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestCheckerFindsWhatALockMustNeverDo(t *testing.T) {
	for _, test := range []struct {
		name  string
		holds []Hold
		want  []ViolationKind
	}{
		{"nothing", nil, nil},
		{"one hold", []Hold{{"k", "a", 1, 10, 20}}, nil},
		{"one after the other", []Hold{{"k", "a", 1, 10, 20}, {"k", "b", 2, 20, 30}}, nil},
		{"one after the other, told in another order", []Hold{{"k", "b", 2, 20, 30}, {"k", "a", 1, 10, 20}}, nil},
		{"at once on other keys", []Hold{{"k", "a", 5, 10, 20}, {"l", "b", 1, 10, 20}}, nil},
		{"over before it began, inside another", []Hold{{"k", "a", 1, 10, 20}, {"k", "b", 2, 15, 15}}, nil},
		{"overlapping by one", []Hold{{"k", "a", 1, 10, 20}, {"k", "b", 2, 19, 30}}, []ViolationKind{Overlap}},
		{"overlapping, told in another order", []Hold{{"k", "b", 2, 19, 30}, {"k", "a", 1, 10, 20}}, []ViolationKind{Overlap}},
		{"overlapping the same holder", []Hold{{"k", "a", 1, 10, 20}, {"k", "a", 2, 19, 30}}, []ViolationKind{Overlap}},
		{"begun at once", []Hold{{"k", "a", 1, 10, 20}, {"k", "b", 2, 10, 20}}, []ViolationKind{Overlap}},
		{"a long one over two short ones", []Hold{{"k", "a", 1, 10, 100}, {"k", "b", 2, 20, 30}, {"k", "c", 3, 40, 50}}, []ViolationKind{Overlap, Overlap}},
		{"a fence twice", []Hold{{"k", "a", 1, 10, 20}, {"k", "b", 1, 20, 30}}, []ViolationKind{FenceRepeated}},
		{"a falling fence", []Hold{{"k", "a", 2, 10, 20}, {"k", "b", 1, 20, 30}}, []ViolationKind{FenceFell}},
		{"a fence below one long before", []Hold{{"k", "a", 9, 10, 20}, {"k", "b", 2, 20, 30}, {"k", "c", 3, 30, 40}}, []ViolationKind{FenceFell, FenceFell}},
		{"a falling fence of a hold that was over before it began", []Hold{{"k", "a", 2, 10, 20}, {"k", "b", 1, 15, 15}}, []ViolationKind{FenceFell}},
		{"all at once", []Hold{{"k", "a", 2, 10, 20}, {"k", "b", 1, 15, 25}}, []ViolationKind{FenceFell, Overlap}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Checker
			for _, h := range test.holds {
				c.Record(h)
			}
			var got []ViolationKind
			for _, v := range c.Violations() {
				got = append(got, v.Kind)
				if v.First.From > v.Second.From {
					t.Errorf("%v: not in order of time", v)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if c.Holds() != len(test.holds) {
				t.Errorf("%d holds, want %d", c.Holds(), len(test.holds))
			}
		})
	}
}

func TestHoldThatNeverEndsOverlapsAllLaterOnes(t *testing.T) {
	var c Checker
	end := c.Begin("k", "crashed", 1, 10)
	c.Record(Hold{Key: "k", Holder: "next", Fence: 2, From: 1000, Until: 1001})
	found := c.Violations()
	if len(found) != 1 || found[0].Kind != Overlap {
		t.Fatalf("got %v, want an overlap", found)
	}
	for _, part := range []string{`two valid holders on "k"`, "crashed with fence 1 in [10, (never ended))", "next with fence 2 in [1000, 1001)"} {
		if s := found[0].String(); !strings.Contains(s, part) {
			t.Errorf("%q does not say %q", s, part)
		}
	}
	end(1000)
	end(2000) // too late to count
	if found := c.Violations(); len(found) != 0 {
		t.Errorf("ended in time, yet %v", found)
	}
}

func TestCheckFailsTheTestAndSaysHowOften(t *testing.T) {
	var c Checker
	for i := range locker.Instant(50) {
		c.Record(Hold{Key: "k", Holder: "a", Fence: locker.Fence(i), From: i, Until: i + 2})
	}
	var said []string
	c.Check(sayings{&recorder{}, &said})
	if len(said) != maxShown+1 || said[maxShown] != "and 39 violations more" {
		t.Errorf("said %q", said)
	}

	said = nil
	(&Checker{}).Check(sayings{&recorder{}, &said})
	if len(said) != 0 {
		t.Errorf("without a violation: said %q", said)
	}
}

// sayings keeps all errors.
type sayings struct {
	*recorder
	said *[]string
}

func (s sayings) Errorf(format string, args ...any) {
	*s.said = append(*s.said, fmt.Sprintf(format, args...))
}

func TestCheckerTakesReportsFromManyAtOnce(t *testing.T) {
	var c Checker
	var wg sync.WaitGroup
	for i := range locker.Instant(50) {
		wg.Go(func() {
			end := c.Begin("k", "a", locker.Fence(i+1), 10*i)
			end(10*i + 10)
			c.Record(Hold{Key: "l", Holder: "b", Fence: locker.Fence(i + 1), From: 10 * i, Until: 10*i + 10})
			c.Violations()
		})
	}
	wg.Wait()
	if found := c.Violations(); len(found) != 0 || c.Holds() != 100 {
		t.Errorf("%d holds and %v", c.Holds(), found)
	}
}
