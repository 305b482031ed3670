// Package lockertest holds what tests of several packages share: the
// conformance suite that every backend passes, a wrapper that injects faults
// into a backend, and the checker that finds two valid holders.
package lockertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// T is what the suite needs of a *testing.T.
type T interface {
	rapid.TB
	Context() context.Context
}

// Harness is a backend under test, with an empty store that no other test
// uses, and hands that reach into that store behind the backend's back. Cases
// that need a hand which is nil are skipped.
type Harness struct {
	Backend locker.Backend

	// Splits says that the backend decides by votes: several who ask at the same
	// time may all be told ErrSplitVote, and ask anew; those who wait are not
	// strictly served in the order in which they came; and of copies of a request
	// that come at the same time each may be carried out by some, so claims may be
	// told different fences and none of the releases that it was the one.
	Splits bool

	// Now is the clock by which the backend understands NotAfter.
	Now locker.Clock

	// CurrentValue returns what is at the key; ok is false if nothing is.
	CurrentValue func(locker.Key) (value string, ok bool)
	// PTTL returns how long the value at the key still lives: 0 if it has no
	// TTL, or if there is no value.
	PTTL func(locker.Key) time.Duration
	// Put writes a value over what is at the key; a ttl of 0 sets none.
	Put func(key locker.Key, value string, ttl time.Duration)
	// Delete removes what is at the key, and only that.
	Delete func(locker.Key)
	// Wipe removes everything from the store.
	Wipe func()
	// LineTTL returns for how long the store keeps anything of the key's line
	// if nobody asks again: 0 if it keeps nothing, below 0 if for ever.
	LineTTL func(locker.Key) time.Duration

	// Figures is the column in which random sequences are counted; "" for none.
	Figures figures.Column

	bubble bool // time is virtual
}

// votesSlowly tells whether the backend decides by votes, and these take time.
// The servers then wake a process one after the other, which on a busy machine
// can be told as twice; and a vote can last longer than the shortest TTL.
func (h Harness) votesSlowly() bool { return h.Splits && !h.bubble }

// Run runs the suite in real time, its cases side by side. open is called for
// each: once, or again if the case fails while the machine does not run this
// process, for then it says nothing of the backend.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ {
				h := open(t)
				p := takePulse()
				r := record(t.Context(), c, h)
				paused := p.stop()
				switch {
				case r.skipped:
					t.Skip(r.text())
				case !r.failed:
					return
				case paused < disturbance || try == mostTries:
					t.Fatal(r.text())
				}
				t.Logf("tried again, since this process was not run for %v: %s", paused, r.text())
			}
		})
	}
}

// RunInBubble runs the suite with each case in a synctest bubble of its own,
// in which open is called too.
func RunInBubble(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t)
				h.bubble = true
				c.run(t, h)
			})
		})
	}
}

// BubbleClock is a [locker.Clock] that follows the virtual time of a bubble.
func BubbleClock() locker.Instant { return locker.Instant(time.Now().UnixNano()) }

// testCase is one fact about every backend.
type testCase struct {
	name string
	run  func(t T, h Harness)
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{
		acquireCases, renewCases, releaseCases, minHoldCases, expiryCases, lateCases,
		fenceCases, concurrencyCases, keyCases, strangerCases, dataLossCases, inspectCases,
		contextCases, queueCases, silenceCases, leaveCases, handOverCases, hintCases, queueContextCases,
		memberCases, breakCases, propertyCases,
	} {
		all = append(all, group...)
	}
	return all
}
