package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// ownRedis gives the scenario a Redis that it may harm.
func (s *scenario) ownRedis(args ...string) {
	s.Helper()
	address, err := s.startRedis(s.ctx(), s.namespace, "redis", args...)
	if err != nil {
		s.Fatal(err)
	}
	s.redis = address
}

// TestRedisRestarts is scenario 9, where Redis dies and comes back.
func TestRedisRestarts(t *testing.T) {
	long(t)
	t.Run("with persistence", func(t *testing.T) {
		s := begin(t, "s09-kept")
		s.ownRedis("--appendonly", "yes", "--appendfsync", "always")
		s.holderAndRival(s.podSpec(5*time.Second, s.worker()), s.podSpec(5*time.Second, s.worker()))
		before := journal.Holds(s.events())[0]
		s.signal("redis", "redis", "KILL")
		time.Sleep(3 * ttl) // long enough for a lease that is lost
		if holds := journal.Holds(s.events()); len(holds) != 1 || holds[0].Fence != before.Fence || holds[0].Ended {
			t.Errorf("the lock was not kept:\n%s", s.transcript())
		} else {
			s.kept("Redis crashes and comes back with its data", "plain")
		}
		if n := containerStatus(s.pod("redis"), "redis").RestartCount; n != 1 {
			t.Errorf("Redis was restarted %d times, want 1", n)
		}
		s.nobodyOverlaps()
	})
	t.Run("without persistence", func(t *testing.T) {
		s := begin(t, "s09-gone")
		s.ownRedis("--save", "")
		s.startPod("holder", s.podSpec(5*time.Second, s.worker()))
		first := s.await(time.Minute, "the holder has the lock", is(journal.Enter, "holder", time.Time{}))
		begun := time.Now()
		s.signal("redis", "redis", "KILL")
		lost := s.await(2*ttl, "the application knows that the lock is lost", is(journal.Lost, "holder", time.Time{}))
		t.Logf("the lock was lost %s after the kill", lost.At.Sub(begun))
		if took := lost.At.Sub(begun); took > ttl {
			t.Errorf("the application knew %s after the kill that the lock is lost, want less than the TTL, %s", took, ttl)
		}
		s.await(time.Minute, "the holder has the lock again, without a restart", is(journal.Enter, "holder", first.At.Add(1)))
		if n := containerStatus(s.pod("holder"), sidecarName).RestartCount; n != 0 {
			t.Errorf("the sidecar was restarted %d times, want 0", n)
		}
		s.nobodyOverlaps() // and so the token of the second grant is higher
	})
}

// TestRedisIsCutOff is scenario 9, where packets of one pod to Redis are
// dropped.
func TestRedisIsCutOff(t *testing.T) {
	long(t)
	s := begin(t, "s09-cut")
	s.ownRedis("--save", "")
	s.holderAndRival(s.podSpec(5*time.Second, s.worker()), s.podSpec(5*time.Second, s.worker("-rounds=1", "-hold=2s")))
	first := journal.Holds(s.events())[0]
	holder := s.pod("holder")
	rule := func(what string) {
		s.onNode(t, holder.Spec.NodeName, "bash", "-c",
			fmt.Sprintf("iptables -w %s FORWARD -s %s -p tcp --dport 6379 -j DROP", what, holder.Status.PodIP))
	}
	begun := time.Now()
	rule("-I")
	lost := s.await(2*ttl, "the application knows that the lock is lost", is(journal.Lost, "holder", time.Time{}))
	enter := s.await(2*ttl, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
	t.Logf("the lock was lost %s after the cut, the rival had it %s later", lost.At.Sub(begun), enter.At.Sub(lost.At))
	s.ending("the pod is cut off from Redis", "plain", enter.At.Sub(lost.At))
	if took := lost.At.Sub(begun); took > ttl {
		t.Errorf("the application knew %s after the cut that the lock is lost, want less than the TTL, %s", took, ttl)
	}
	s.await(time.Minute, "the rival has given the lock back", is(journal.Exit, "rival", time.Time{}))
	rule("-D")
	s.await(time.Minute, "the holder has the lock again, without a restart", is(journal.Enter, "holder", first.From.Add(1)))
	if n := containerStatus(s.pod("holder"), sidecarName).RestartCount; n != 0 {
		t.Errorf("the sidecar was restarted %d times, want 0", n)
	}
	s.nobodyOverlaps()
}
