package locker

import (
	"testing"
	"time"
)

const (
	// aClock is what a store's clock says in microseconds.
	aClock = int64(1_790_000_000_000_000)
	aYear  = 365 * 24 * time.Hour
	atNoon = Instant(12 * time.Hour)
)

func TestTheFloorIsNoneUntilSomethingIsLearned(t *testing.T) {
	var f fenceFloor
	if got := f.now(atNoon); got != 0 {
		t.Errorf("floor %d, want none", got)
	}
	f.learnClock(0, atNoon)
	f.learnClock(-1, atNoon)
	if got := f.now(atNoon); got != 0 {
		t.Errorf("floor %d after answers without a clock, want none", got)
	}
}

func TestTheFloorIsAboveTheStoresClockAndRisesWithElapsedTime(t *testing.T) {
	var f fenceFloor
	f.learnClock(aClock, atNoon)
	for elapsed, want := range map[time.Duration]Fence{
		0: Fence(aClock) + 1, time.Microsecond: Fence(aClock) + 2, time.Hour: Fence(aClock) + 3_600_000_001,
	} {
		if got := f.now(atNoon.Add(elapsed)); got != want {
			t.Errorf("%v later: floor %d, want %d", elapsed, got, want)
		}
	}
}

func TestTheFloorIsAboveEveryTokenSeen(t *testing.T) {
	var f fenceFloor
	f.learn(100)
	f.learn(7)
	if got := f.now(atNoon); got != 101 {
		t.Errorf("floor %d, want 101", got)
	}
	f.learnClock(90, atNoon)
	if got := f.now(atNoon.Add(5 * time.Microsecond)); got != 101 {
		t.Errorf("floor %d, want the token's 101", got)
	}
	if got := f.now(atNoon.Add(20 * time.Microsecond)); got != 111 {
		t.Errorf("floor %d, want the clock's 111", got)
	}
}

func TestAClockThatStepsBackOrLagsDoesNotLowerTheFloor(t *testing.T) {
	var f fenceFloor
	f.learnClock(aClock, atNoon)
	later := atNoon.Add(time.Minute)
	before := f.now(later)
	f.learnClock(aClock-3_600_000_000, later)
	f.learnClock(aClock+59_000_000, later) // a second less than has passed
	if got := f.now(later); got != before {
		t.Errorf("floor %d, want %d", got, before)
	}
	f.learnClock(aClock+61_000_000, later)
	if got := f.now(later); got != Fence(aClock+61_000_001) {
		t.Errorf("floor %d, want the faster clock's", got)
	}
}

func TestImplausibleNumbersAreNotLearned(t *testing.T) {
	var f fenceFloor
	if f.plausible(0, atNoon) || f.plausible(-5, atNoon) || f.plausible(MaxFence+1, atNoon) {
		t.Error("a number out of range is plausible")
	}
	if !f.plausible(MaxFence, atNoon) || !f.plausible(1, atNoon) {
		t.Error("with nothing learned, a number within the range is implausible")
	}
	f.learnClock(aClock, atNoon)
	floor := f.now(atNoon)
	edge := floor + Fence(aYear/time.Microsecond)
	if !f.plausible(edge, atNoon) || f.plausible(edge+1, atNoon) {
		t.Errorf("the edge of what is plausible is not a year above the floor")
	}
	if !f.plausible(1, atNoon) {
		t.Error("a token below the floor is implausible: the store alone judges that")
	}
	f.learnClock(aClock+2*aYear.Microseconds(), atNoon)
	if got := f.now(atNoon); got != floor {
		t.Errorf("a clock two years ahead was learned: floor %d, want %d", got, floor)
	}
}
