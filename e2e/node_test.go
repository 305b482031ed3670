package e2e

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// TestTheNodeIsLost is scenario 7. The lease ends a TTL after it was last
// renewed, and that was up to a third of the TTL before the node died. The
// application hears of a renewal a moment after Redis has carried it out.
func TestTheNodeIsLost(t *testing.T) {
	long(t)
	s := begin(t, "s07-node")
	if len(s.nodes) < 3 {
		t.Skipf("the cluster has %d nodes, and this takes 3: E2E_NODES=3", len(s.nodes))
	}
	dies, lives := s.nodes[1].String(), s.nodes[2].String()
	holder := s.podSpec(5*time.Second, s.worker("-bind"))
	holder.NodeName = dies
	rival := s.podSpec(5*time.Second, s.worker("-bind"))
	rival.NodeName = lives
	s.holderAndRival(holder, rival)
	t.Cleanup(func() { s.restartNode(dies) })
	s.docker("kill", dies)
	enter := s.await(3*ttl, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
	death := s.lastLine("holder").At
	took := enter.At.Sub(death)
	t.Logf("the rival had the lock %s after the node's death", took)
	s.ending("the node is lost", "bound", took)
	s.nobodyOverlaps()
	lease := enter.At.Sub(s.lastRenewed("holder"))
	t.Logf("and %s after the last renewal", lease)
	if lease < ttl-100*time.Millisecond || lease > ttl+time.Second {
		t.Errorf("the rival had the lock %s after its last renewal, want %s to %s", lease, ttl, ttl+time.Second)
	}
}

// lastRenewed is when the pod last heard that its bound lock was granted or
// renewed.
func (s *scenario) lastRenewed(pod string) time.Time {
	s.Helper()
	var last time.Time
	for _, e := range s.events() {
		if of(e, pod) && (e.Kind == journal.Enter || e.Kind == journal.Renewed) {
			last = e.At
		}
	}
	return last
}
