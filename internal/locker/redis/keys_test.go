package redis

import (
	"testing"
	"time"
)

func TestTimesAreRoundedUpToMillisecondsAndNeverToNone(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", 1: "1", time.Millisecond - 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2",
		999 * time.Millisecond: "999", 24 * time.Hour: "86400000",
	} {
		if got := millis(d); got != want {
			t.Errorf("millis(%v) = %s, want %s", d, got, want)
		}
		if d <= 0 {
			want = "0"
		}
		if got := millisOrNone(d); got != want {
			t.Errorf("millisOrNone(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestThePrefixMayBeEmpty(t *testing.T) {
	if l := (layout{}); l.lock("a/b") != "a/b" || l.record("a/b") != "#grant:{a/b}" {
		t.Errorf("names %q and %q", l.lock("a/b"), l.record("a/b"))
	}
}
