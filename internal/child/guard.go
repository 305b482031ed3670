package child

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// guard decides when the command has to end, from what is told of the lease
// and from the clock. It does nothing itself. Time is judged before anything
// else: what is told after the end of the lease that was known cannot prolong
// it, so that a process that was stopped beyond it stops the command first.
//
// A stop, once begun, is not taken back: the command was told to end, and a
// renewal that comes after all does not move its KILL.
type guard struct {
	killAfter time.Duration  // from TERM to the end of the lease, at most
	until     locker.Instant // the end of the lease, as last told

	stopping bool
	killed   bool
	killAt   locker.Instant // once it is stopping
	reason   string         // why, if it is for the lock's sake
}

// action is what has to be done to the command now.
type action int

const (
	nothing   action = iota
	terminate        // TERM
	kill             // KILL
)

const (
	// overdue is the reason that the clock gives, and silent the one of news
	// that have ended.
	overdue = "the lock has not been renewed in time"
	silent  = "nothing is heard of the lock any more"
)

// lead is how long before the end of the lease KILL is sent, so that the
// processes are gone by then: a busy machine takes its time to end them.
func (g *guard) lead() time.Duration { return min(g.killAfter/10, 50*time.Millisecond) }

// due says what the clock demands.
func (g *guard) due(now locker.Instant) action {
	switch {
	case g.killed:
		return nothing
	case now >= g.killDeadline():
		if !g.stopping {
			g.reason = overdue
		}
		g.stopping, g.killed = true, true
		return kill
	case !g.stopping && now >= g.termDeadline():
		g.stop(overdue, g.killDeadline())
		return terminate
	}
	return nothing
}

func (g *guard) termDeadline() locker.Instant { return g.until.Add(-g.killAfter) }

func (g *guard) killDeadline() locker.Instant {
	if g.stopping {
		return g.killAt
	}
	return g.until.Add(-g.lead())
}

func (g *guard) stop(reason string, killAt locker.Instant) {
	g.stopping, g.reason, g.killAt = true, reason, killAt
}

// next is when the clock will demand something.
func (g *guard) next() (at locker.Instant, ok bool) {
	switch {
	case g.killed:
		return 0, false
	case g.stopping:
		return g.killAt, true
	}
	return min(g.termDeadline(), g.killDeadline()), true
}

// renewed takes in a new end of the lease.
func (g *guard) renewed(until locker.Instant) {
	if !g.stopping {
		g.until = until
	}
}

// lost takes in that the lock is not held any more. The command has until the
// end of the lease that was known, if that was told rightly, and in any case
// no longer than it has in any other stop.
func (g *guard) lost(reason string, now locker.Instant) action {
	if g.stopping && g.reason != "" {
		return nothing
	}
	g.stop(reason, min(now.Add(g.killAfter), g.killDeadline()))
	return terminate
}

// ended takes in that the command has ended and has left processes behind,
// which must not outlive the lock.
func (g *guard) ended(now locker.Instant) action {
	if g.stopping {
		return nothing
	}
	g.stop("", min(now.Add(g.killAfter), g.killDeadline()))
	return terminate
}
