package redis

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// theirs makes readings of a server whose clock is ahead of ours by offset.
func theirs(offset time.Duration, sent, executed, received time.Duration) reading {
	return reading{
		micros: int64((executed + offset) / time.Microsecond),
		sent:   locker.Instant(sent), received: locker.Instant(received),
	}
}

func TestNothingTranslatedIsExecutedAfterItsInstant(t *testing.T) {
	for range 200 {
		var c serverClock
		offset := time.Duration(rand.Int64N(int64(60*365*24*time.Hour))) + 24*time.Hour
		now := time.Duration(rand.Int64N(int64(24*time.Hour)) + 1)
		ppm := time.Duration(rand.IntN(1900) - 950) // of a drift that stays below the bound
		for range 20 {
			elapsed := time.Duration(rand.Int64N(int64(time.Minute)))
			offset += elapsed * ppm / 1_000_000
			now += elapsed
			there := time.Duration(rand.Int64N(int64(100 * time.Millisecond)))
			back := time.Duration(rand.Int64N(int64(100 * time.Millisecond)))
			if step := c.observe(theirs(offset, now, now+there, now+there+back)); step != 0 {
				t.Fatalf("a drift of %d ppm counted as a step of %v", ppm, step)
			}
			now += there + back
			notAfter := now + time.Duration(rand.Int64N(int64(time.Second)))
			got := c.translate(locker.Instant(notAfter), locker.Instant(now))
			exact := int64((notAfter + offset) / time.Microsecond)
			if got > exact {
				t.Fatalf("translated to %d µs after the instant", got-exact)
			}
			if worst := int64(250*time.Millisecond) / 1000; exact-got > worst {
				t.Fatalf("translated to %d µs before the instant", exact-got)
			}
		}
	}
}

func TestAnUnknownClockRefusesEverything(t *testing.T) {
	var c serverClock
	if got := c.translate(locker.Instant(time.Hour), 0); got != 0 {
		t.Errorf("translate = %d, want 0", got)
	}
}

func TestAFarInstantStaysWithinLuasNumbers(t *testing.T) {
	var c serverClock
	c.observe(theirs(50*365*24*time.Hour, 0, 0, 0))
	if got := c.translate(1<<63-1, 0); got != maxMicros {
		t.Errorf("translate = %d, want %d", got, int64(maxMicros))
	}
}

func TestAStepIsToldOnceAndForgetsWhatWasKnown(t *testing.T) {
	const hour = time.Hour
	for _, step := range []time.Duration{-time.Minute, -20 * time.Millisecond, 20 * time.Millisecond, time.Minute} {
		var c serverClock
		c.observe(theirs(hour, 0, time.Millisecond, 2*time.Millisecond))
		now := time.Second
		r := theirs(hour+step, now, now+time.Millisecond, now+2*time.Millisecond)
		told := c.observe(r)
		if (told - step).Abs() > 4*time.Millisecond {
			t.Errorf("a step of %v was told as %v", step, told)
		}
		if again := c.observe(r); again != 0 {
			t.Errorf("it was told again, as %v", again)
		}
		if got := c.takeStep(); got != told {
			t.Errorf("takeStep = %v, want %v", got, told)
		}
		if got := c.takeStep(); got != 0 {
			t.Errorf("takeStep again = %v", got)
		}
		got := c.translate(locker.Instant(2*now), locker.Instant(now))
		exact := int64((2*now + hour + step) / time.Microsecond)
		if got > exact || got < exact-4000 {
			t.Errorf("after the step the translation is off by %d µs", got-exact)
		}
	}
}

func TestASmallContradictionIsNoStep(t *testing.T) {
	var c serverClock
	c.observe(theirs(time.Hour, 0, 0, 0))
	if step := c.observe(theirs(time.Hour-3*time.Millisecond, time.Second, time.Second, time.Second)); step != 0 {
		t.Errorf("told a step of %v", step)
	}
	got := c.translate(locker.Instant(time.Second), locker.Instant(time.Second))
	if exact := int64((time.Second + time.Hour - 3*time.Millisecond) / time.Microsecond); got > exact {
		t.Errorf("translated to %d µs after the instant: the older reading still counts", got-exact)
	}
}

func TestANewConnectionForgetsTheClockOfTheServerBefore(t *testing.T) {
	var c serverClock
	c.connected(theirs(time.Hour, 0, 0, 0))
	now := time.Second
	// 4 ms behind, too little to contradict, from another server.
	c.connected(theirs(time.Hour-4*time.Millisecond, now-time.Millisecond, now, now+time.Millisecond))
	got := c.translate(locker.Instant(2*now), locker.Instant(now))
	if exact := int64((2*now + time.Hour - 4*time.Millisecond) / time.Microsecond); got > exact {
		t.Errorf("translated to %d µs after the instant", got-exact)
	}
	if c.takeStep() != 0 {
		t.Error("told as a step")
	}
	c.connected(theirs(2*time.Hour, now, now, now))
	if step := c.takeStep(); (step - time.Hour).Abs() > 20*time.Millisecond {
		t.Errorf("another clock was told as a step of %v, want an hour", step)
	}
}
