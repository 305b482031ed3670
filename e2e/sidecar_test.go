package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// TestTheSidecarIsKilled is scenario 6.
func TestTheSidecarIsKilled(t *testing.T) {
	long(t)
	t.Run("once", func(t *testing.T) {
		s := begin(t, "s06-kill-once")
		s.holderAndRival(s.podSpec(5*time.Second, s.worker()), s.podSpec(5*time.Second, s.worker()))
		before := journal.Holds(s.events())[0]
		begun := time.Now()
		s.signal("holder", sidecarName, "KILL")
		s.eventually(ttl, "the sidecar has renewed the same lease", func() (bool, string) {
			out, err := s.execute(s.ctx(), s.namespace, "holder", sidecarName, "/locksidecar", "status", "job",
				"--fencing-token", strconv.FormatUint(before.Fence, 10), "-o", "json")
			if err != nil {
				return false, err.Error() // it is down, or has not taken it up
			}
			// Until it is renewed it is at risk.
			return containerStatus(s.pod("holder"), sidecarName).RestartCount == 1 && strings.Contains(out, `"state":"held"`), out
		})
		// By its old end, which is a TTL after its last renewal at the latest.
		took := time.Since(begun)
		t.Logf("the same lease was held again %s after the kill", took)
		if took > ttl {
			t.Errorf("the lease was held again %s after the kill, want less than the TTL, %s", took, ttl)
		}
		time.Sleep(2 * ttl) // long enough for a lease that is not renewed to end
		holds := journal.Holds(s.events())
		if len(holds) != 1 || holds[0].Fence != before.Fence || holds[0].Ended || holds[0].To.Before(begun.Add(2*ttl)) {
			t.Errorf("the lease was not taken up again:\n%s", s.transcript())
		} else {
			s.kept("the sidecar crashes", "plain")
		}
		if n := containerStatus(s.pod("holder"), sidecarName).RestartCount; n != 1 {
			t.Errorf("the sidecar was restarted %d times, want 1", n)
		}
		s.nobodyOverlaps()
	})
	t.Run("for longer", func(t *testing.T) {
		s := begin(t, "s06-kill-long")
		s.holderAndRival(s.podSpec(5*time.Second, s.worker()), s.podSpec(5*time.Second, s.worker()))
		begun := time.Now()
		s.signal("holder", sidecarName, "KILL")
		s.eventually(4*ttl, "the application knows that the lock is lost", func() (bool, string) {
			_, _ = s.trySignal("holder", sidecarName, "KILL") // it may be down
			for _, e := range s.events() {
				if e.Kind == journal.Lost && of(e, "holder") {
					return true, ""
				}
			}
			return false, s.transcript()
		})
		lost := s.await(time.Second, "the lock is lost", is(journal.Lost, "holder", time.Time{}))
		enter := s.await(2*ttl, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
		t.Logf("the lock was lost %s after the kill, the rival had it %s later", lost.At.Sub(begun), enter.At.Sub(lost.At))
		s.ending("the sidecar is killed again and again until its lease has ended", "plain", enter.At.Sub(lost.At))
		s.nobodyOverlaps()
	})
	t.Run("bound", func(t *testing.T) {
		s := begin(t, "s06-kill-bound")
		s.holderAndRival(s.podSpec(5*time.Second, s.worker("-bind", "-rounds=1")), s.podSpec(5*time.Second, s.worker("-bind")))
		begun := time.Now()
		s.signal("holder", sidecarName, "KILL")
		lost := s.await(ttl, "the application knows that the lock is lost", is(journal.Lost, "holder", time.Time{}))
		enter := s.await(2*ttl, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
		t.Logf("the stream ended at most %s after the kill, the rival had the lock %s later", lost.At.Sub(begun), enter.At.Sub(lost.At))
		s.ending("the sidecar crashes", "bound", enter.At.Sub(lost.At))
		s.nobodyOverlaps()
	})
}

// TestTheSidecarIsFrozen is scenario 8.
func TestTheSidecarIsFrozen(t *testing.T) {
	long(t)
	s := begin(t, "s08-freeze")
	s.holderAndRival(s.podSpec(5*time.Second, s.worker("-rounds=1")), s.podSpec(5*time.Second, s.worker()))
	s.signal("holder", sidecarName, "STOP")
	time.Sleep(2 * ttl) // as long as the scenario says
	answer := make(chan string, 1)
	go func() {
		out, err := s.execute(s.ctx(), s.namespace, "holder", sidecarName, "/locksidecar", "status", "job", "-o", "json")
		if err != nil {
			out += err.Error()
		}
		answer <- out
	}()
	time.Sleep(500 * time.Millisecond) // for the request to be there when it wakes; later is as good, but less hard
	s.signal("holder", sidecarName, "CONT")
	select {
	case got := <-answer:
		if !strings.Contains(got, `"code":"lost"`) {
			t.Errorf("the first answer after the freeze is %s, want the problem lost", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer within 10s after the freeze")
	}
	s.await(time.Second, "the application knows that the lock is lost", is(journal.Lost, "holder", time.Time{}))
	s.await(time.Second, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
	s.nobodyOverlaps()
}
