// Package renewer is the watchdog: one loop over a deadline-ordered heap that
// decides when a held lock is renewed and when there is no time left for it.
// It sends nothing itself and keeps no lock state but that schedule.
package renewer

import (
	"math/rand/v2"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// A renewal is due when this part of the TTL has passed, so that there is
	// time to repeat it before the lease ends.
	dueFraction = 3
	// Renewals that are due within this part of the TTL go out together.
	togetherFraction = 30
	// A failed renewal is repeated after this part of the TTL, within bounds.
	retryFraction = 15
	retryMin      = 20 * time.Millisecond
	retryMax      = time.Second
)

// next returns when the grant needs its next renewal, never after its
// validity is over. Jitter only shortens: early, never late.
func next(b locker.Beat, now locker.Instant) locker.Instant {
	due := b.Confirmed.Add(b.TTL / dueFraction)
	if b.Failures > 0 {
		pause := min(max(b.TTL/retryFraction, retryMin), retryMax)
		due = now.Add(pause - rand.N(pause/2))
	}
	return min(max(due, now), b.ValidUntil)
}
