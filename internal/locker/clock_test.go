package locker_test

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestTheDriftMarginIsAHundredthOfTheTTLAndTheStoresRounding(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:      12 * time.Millisecond,
		30 * time.Second: 302 * time.Millisecond,
		24 * time.Hour:   14*time.Minute + 24*time.Second + 2*time.Millisecond,
	} {
		if got := locker.DriftMargin(ttl); got != want {
			t.Errorf("of %v: %v, want %v", ttl, got, want)
		}
	}
}

func TestTheBootClockRunsForward(t *testing.T) {
	began, start := locker.BootTime(), time.Now()
	for last := began; time.Since(start) < 20*time.Millisecond; {
		now := locker.BootTime()
		if now < last {
			t.Fatalf("it went back by %v", last.Sub(now))
		}
		last = now
	}
	elapsed, passed := time.Since(start), locker.BootTime().Sub(began)
	if began <= 0 || passed < elapsed {
		t.Errorf("%v passed on it from %d while %v went by", passed, began, elapsed)
	}
}

func TestInstantsShowWholeMillisecondsRoundedDown(t *testing.T) {
	i := locker.Instant(0).Add(1999 * time.Microsecond)
	if got := i.Milliseconds(); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}
