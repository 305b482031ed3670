package metrics

import (
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var _ locker.Observer = (*Metrics)(nil)

// timedResults are the ends of a request that tell how long it is waited for
// locks. The others come at once, whatever the line.
var timedResults = []locker.AcquireResult{locker.AcquireGranted, locker.AcquireTimedOut, locker.AcquireCallerGone}

// Acquired counts the end of a request.
func (m *Metrics) Acquired(result locker.AcquireResult, waited time.Duration) {
	m.acquires.WithLabelValues(string(result)).Inc()
	if slices.Contains(timedResults, result) {
		m.acquireWait.WithLabelValues(string(result)).Observe(waited.Seconds())
	}
}

// Released counts a lock given back. A grant that nobody was told of was
// never held, and one found lost is timed by Lost.
func (m *Metrics) Released(result locker.ReleaseResult, held time.Duration) {
	m.releases.WithLabelValues(string(result)).Inc()
	switch result {
	case locker.ReleaseGivenBack, locker.ReleaseNotOurs:
	default:
		m.hold.Observe(held.Seconds())
	}
}

// Lost counts a grant that ended before it was given back.
func (m *Metrics) Lost(cause locker.Cause, held time.Duration) {
	m.lost.WithLabelValues(string(cause)).Inc()
	m.hold.Observe(held.Seconds())
}

// Renewed counts one attempt. Only a success leaves a slack: a failure is
// tried again, and its retry tells how near to the end it came.
func (m *Metrics) Renewed(result locker.RenewResult, slack time.Duration) {
	m.renewals.WithLabelValues(string(result)).Inc()
	if result == locker.RenewOK {
		m.renewalSlack.Observe(slack.Seconds())
	}
}

// Verified counts one look at a lock that is not extended. What is left of such
// a lock says nothing of how late renewals are.
func (m *Metrics) Verified(result locker.RenewResult) {
	m.renewals.WithLabelValues(string(result)).Inc()
}

// Orphan counts a value at a lock's key that will not expire in time.
func (m *Metrics) Orphan() { m.orphans.Inc() }

// ClockStep makes the check CheckClockStep warn for an hour: a step is over
// at once, and a gauge that went back at the next scrape would go unseen.
func (m *Metrics) ClockStep(time.Duration) { m.clockStep.raise() }

// HandedOver takes the time from a waiter's wake-up, or a release here, to its
// grant.
func (m *Metrics) HandedOver(took time.Duration) { m.handover.Observe(took.Seconds()) }

// WokenUp counts a wake-up that reached a waiter.
func (m *Metrics) WokenUp() { m.wakeups.Inc() }

// Polled counts a waiter's call to the store that no wake-up had caused.
func (m *Metrics) Polled() { m.polls.Inc() }
