package quorum_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// trace is what the nodes of a simulation have executed. It is kept only if
// LOCKSIDECAR_SIM_TRACE is set, to be shown with a violation.
type trace struct {
	on    bool
	lines []string
}

func newTrace() trace { return trace{on: os.Getenv("LOCKSIDECAR_SIM_TRACE") != ""} }

func (s *simulation) trace(format string, args ...any) {
	if !s.traced.on {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traced.lines = append(s.traced.lines, fmt.Sprintf("%13d ", s.now())+fmt.Sprintf(format, args...))
}

// of returns what was done about a key in an interval.
func (t trace) of(key locker.Key, from, to locker.Instant) string {
	var some []string
	for _, line := range t.lines {
		var at locker.Instant
		_, _ = fmt.Sscan(line, &at)
		if at >= from && at <= to && (strings.Contains(line, fmt.Sprintf("%q", key)) || strings.Contains(line, "forgets")) {
			some = append(some, line)
		}
	}
	return strings.Join(some, "\n")
}

// called shows a token by its holder and the end of what is random.
func called(t locker.Token) string {
	s := t.Reveal()
	return s[4:9] + s[len(s)-4:]
}

// traced is a node whose calls are traced as they are executed.
type traced struct {
	*simNode
	index int
}

func (n traced) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	g, err := n.simNode.Acquire(ctx, c)
	n.sim.trace("node %d: claim %q %s for %v by %d: %d, %v", n.index, c.Key, called(c.Token), c.Keep, c.NotAfter, g.Fence, err)
	return g, err
}

func (n traced) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	g, err := n.simNode.AcquireInLine(ctx, c, t)
	n.sim.trace("node %d: claim in line %q %s for %v by %d: %d, %v", n.index, c.Key, called(c.Token), c.Keep, c.NotAfter, g.Fence, err)
	return g, err
}

func (n traced) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	v, g, err := n.simNode.HandOver(ctx, s, c, t)
	n.sim.trace("node %d: hand over %q from %s: %v; to %s for %v by %d: %d, %v", n.index, c.Key, called(s.Token), v.Err, called(c.Token), c.Keep, c.NotAfter, g.Fence, err)
	return v, g, err
}

func (n traced) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	verdicts := n.simNode.Renew(ctx, renewals)
	for i, r := range renewals {
		n.sim.trace("node %d: renew %q %s for %v by %d: %v", n.index, r.Key, called(r.Token), r.Keep, r.NotAfter, verdicts[i].Err)
	}
	return verdicts
}

func (n traced) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	verdicts := n.simNode.Release(ctx, surrenders)
	for i, s := range surrenders {
		n.sim.trace("node %d: release %q %s quiet %v: %v", n.index, s.Key, called(s.Token), s.Quiet, verdicts[i].Err)
	}
	return verdicts
}

func (n traced) Heal(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
	verdicts := n.simNode.Heal(ctx, remedies)
	for i, r := range remedies {
		n.sim.trace("node %d: heal %q %s for %v by %d: %v", n.index, r.Key, called(r.Token), r.Keep, r.NotAfter, verdicts[i].Err)
	}
	return verdicts
}

func (n traced) Raise(ctx context.Context, r locker.Raising) (locker.Fence, error) {
	fence, err := n.simNode.Raise(ctx, r)
	n.sim.trace("node %d: raise %q %s to %d: %d, %v", n.index, r.Key, called(r.Token), r.Fence, fence, err)
	return fence, err
}

const traceBefore = 6 * time.Second
