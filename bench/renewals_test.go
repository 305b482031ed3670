package main

import (
	"testing"
	"time"
)

func TestARenewalIsLateByWhatItTookBeyondAThirdOfTheTTL(t *testing.T) {
	granted := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return granted.Add(d) }
	third := ttl / 3

	for _, c := range []struct {
		name  string
		looks [][2]time.Time // when it was renewed last, when we looked
		want  time.Duration
	}{
		{"in time", [][2]time.Time{{granted, at(1)}, {at(third - time.Second), at(third)}}, 0},
		{"late", [][2]time.Time{{granted, at(1)}, {at(third + 300*time.Millisecond), at(third + time.Second)}}, 300 * time.Millisecond},
		{"late in the past", [][2]time.Time{
			{granted, at(1)}, {at(third + 300*time.Millisecond), at(third + time.Second)}, {at(2 * third), at(2 * third)},
		}, 300 * time.Millisecond},
		{"not yet renewed", [][2]time.Time{{granted, at(1)}, {granted, at(third + 2*time.Second)}}, 2 * time.Second},
		{"not yet due", [][2]time.Time{{granted, at(1)}, {granted, at(third - time.Second)}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRenewalWatch([]string{"k"}, ttl)
			for _, look := range c.looks {
				w.saw(0, look[0].Add(ttl), look[1])
			}
			if w.latest != c.want {
				t.Errorf("latest %v, want %v", w.latest, c.want)
			}
		})
	}
}
