package renewer

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// at is when the beats of these tests are taken in.
const at = locker.Instant(time.Hour)

func TestARenewalIsDueWhenAThirdOfTheTTLHasPassed(t *testing.T) {
	for _, test := range []struct {
		name string
		beat locker.Beat
		want time.Duration // from now
	}{
		{"just confirmed", locker.Beat{Confirmed: at, TTL: 30 * time.Second, ValidUntil: at.Add(29 * time.Second)}, 10 * time.Second},
		{"confirmed a while ago", locker.Beat{Confirmed: at.Add(-4 * time.Second), TTL: 30 * time.Second, ValidUntil: at.Add(25 * time.Second)}, 6 * time.Second},
		{"overdue", locker.Beat{Confirmed: at.Add(-20 * time.Second), TTL: 30 * time.Second, ValidUntil: at.Add(9 * time.Second)}, 0},
		{"ends before it is due", locker.Beat{Confirmed: at, TTL: 30 * time.Second, ValidUntil: at.Add(time.Second)}, time.Second},
		{"has ended", locker.Beat{Confirmed: at.Add(-time.Minute), TTL: 30 * time.Second, ValidUntil: at.Add(-30 * time.Second)}, -30 * time.Second},
		{"failed and has ended", locker.Beat{Failures: 1, TTL: 30 * time.Second, ValidUntil: at.Add(-time.Second)}, -time.Second},
	} {
		if got := next(test.beat, at).Sub(at); got != test.want {
			t.Errorf("%s: due in %v, want %v", test.name, got, test.want)
		}
	}
}

func TestAFailedRenewalIsRepeatedSoonAndItsJitterOnlyShortens(t *testing.T) {
	for ttl, longest := range map[time.Duration]time.Duration{
		100 * time.Millisecond: retryMin,
		time.Second:            time.Second / retryFraction,
		9 * time.Second:        9 * time.Second / retryFraction,
		24 * time.Hour:         retryMax,
	} {
		seen := make(map[time.Duration]bool)
		for failures := range 200 {
			due := next(locker.Beat{Confirmed: at.Add(-ttl / 2), TTL: ttl, ValidUntil: at.Add(ttl), Failures: failures + 1}, at).Sub(at)
			if due <= longest/2 || due > longest {
				t.Errorf("TTL %v: repeated after %v, want more than %v and at most %v", ttl, due, longest/2, longest)
			}
			seen[due] = true
		}
		if len(seen) < 100 {
			t.Errorf("TTL %v: only %d different pauses of 200", ttl, len(seen))
		}
	}
}

func TestARepeatedRenewalIsNotPutOffBeyondTheLease(t *testing.T) {
	for range 200 {
		b := locker.Beat{TTL: time.Hour, ValidUntil: at.Add(600 * time.Millisecond), Failures: 1}
		if due := next(b, at); due > b.ValidUntil || due < at {
			t.Fatalf("due %v after now", due.Sub(at))
		}
	}
}
