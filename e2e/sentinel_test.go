package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// sentinels is a master, a replica and three Sentinels.
type sentinels struct {
	*scenario
	master, replica string // their addresses, without port
	watchers        []string
}

// startSentinels starts them and waits until the replica is in step.
func (s *scenario) startSentinels() sentinels {
	s.Helper()
	out := sentinels{scenario: s}
	out.master = s.startServer(s.redisPod("redis-0"))
	out.replica = s.startServer(s.redisPod("redis-1", "--replicaof", out.master, "6379"))
	for n := range 3 {
		pod := s.redisPod(fmt.Sprintf("sentinel-%d", n))
		c := &pod.Spec.Containers[0]
		c.Command = []string{"/bin/sh", "-c", fmt.Sprintf(`printf '%%s\n' 'port 26379' 'protected-mode no' 'dir /data' \
	'sentinel monitor main %s 6379 2' 'sentinel down-after-milliseconds main 1000' 'sentinel failover-timeout main 5000' >/data/sentinel.conf
exec redis-server /data/sentinel.conf --sentinel`, out.master)}
		c.Args = nil
		c.ReadinessProbe.TCPSocket.Port = intstr.FromInt32(26379)
		out.watchers = append(out.watchers, s.startServer(pod)+":26379")
	}
	s.eventually(30*time.Second, "the Sentinels know each other and the replica", func() (bool, string) {
		for n := range out.watchers {
			text, err := s.execute(s.ctx(), s.namespace, fmt.Sprintf("sentinel-%d", n), "redis", "/bin/redis-cli", "-p", "26379", "INFO", "sentinel")
			if err != nil || !strings.Contains(text, "status=ok,") || !strings.Contains(text, "slaves=1,sentinels=3") {
				return false, text
			}
		}
		return true, ""
	})
	return out
}

// startServer starts the pod and returns its address once it is ready.
func (s *scenario) startServer(pod *corev1.Pod) string {
	s.Helper()
	if _, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx(), pod, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if err := s.ready(s.ctx(), s.namespace, pod.Name, time.Minute); err != nil {
		s.Fatal(err)
	}
	return s.pod(pod.Name).Status.PodIP
}

// podSpec is that of the scenario with a sidecar that asks the Sentinels.
func (s sentinels) podSpec(app corev1.Container) corev1.PodSpec {
	spec := s.scenario.podSpec(5*time.Second, app)
	side := &spec.InitContainers[0]
	setEnv(side, "LOCKSIDECAR_REDIS_MODE", "sentinel")
	setEnv(side, "LOCKSIDECAR_REDIS_ADDRS", strings.Join(s.watchers, ","))
	setEnv(side, "LOCKSIDECAR_SENTINEL_MASTER", "main")
	return spec
}

// TestSentinelFailsOver is scenario 13.
func TestSentinelFailsOver(t *testing.T) {
	long(t)
	t.Run("replica in step", func(t *testing.T) {
		s := begin(t, "s13-sentinel").startSentinels()
		s.holderAndRival(s.podSpec(s.worker()), s.podSpec(s.worker()))
		before := journal.Holds(s.events())[0]
		begun := time.Now()
		s.deletePod("redis-0", to(int64(0)))
		time.Sleep(4 * ttl) // time enough for the failover, and for a lost lock to be granted anew
		events := s.events()
		holds := journal.Holds(events)
		last := holds[len(holds)-1]
		t.Logf("kept: %v; %d grants", last.Fence == before.Fence, len(holds))
		if last.Ended || last.To.Before(begun.Add(3*ttl)) {
			t.Errorf("nobody holds the lock after the failover:\n%s", s.transcript())
		}
		for _, pod := range []string{"holder", "rival"} {
			if n := containerStatus(s.pod(pod), sidecarName).RestartCount; n != 0 {
				t.Errorf("the sidecar of %s was restarted %d times, want 0", pod, n)
			}
		}
		s.nobodyOverlaps()
	})
	t.Run("stale replica", func(t *testing.T) {
		// The grant of the holder never gets to the replica that becomes master:
		// the lock is given to another while the holder, which does not listen,
		// works on. That is what fencing tokens are for.
		s := begin(t, "s13-stale").startSentinels()
		s.startPod("rival", s.podSpec(s.worker()))
		s.await(time.Minute, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
		s.startPod("holder", s.podSpec(s.worker("-careless")))
		s.await(time.Minute, "the holder has started", is(journal.Start, "holder", time.Time{}))
		s.waits("holder")
		s.onNode(t, s.pod("redis-1").Spec.NodeName, "iptables", "-w", "-I", "FORWARD", "-s", s.replica, "-d", s.master, "-p", "tcp", "--dport", "6379", "-j", "DROP")
		s.onNode(t, s.pod("redis-1").Spec.NodeName, "iptables", "-w", "-I", "FORWARD", "-s", s.master, "-d", s.replica, "-p", "tcp", "--sport", "6379", "-j", "DROP")
		if out, err := s.execute(s.ctx(), s.namespace, "rival", sidecarName, "/locksidecar", "unlock", "job"); err != nil {
			t.Fatal(err, out)
		}
		first := s.await(ttl, "the holder has the lock", is(journal.Enter, "holder", time.Time{}))
		s.deletePod("redis-0", to(int64(0)))
		second := s.await(time.Minute, "the rival has the lock from the new master", is(journal.Enter, "rival", first.At))
		time.Sleep(time.Second) // for lines of both
		if second.Fence <= first.Fence {
			t.Errorf("the fencing token went from %d to %d", first.Fence, second.Fence)
		}
		taken, refused := journal.Fenced(s.events())
		t.Logf("of the writes to a resource that looks at fencing tokens %d were taken, %d of the stale holder refused", taken, refused)
		if refused == 0 {
			t.Error("the stale holder wrote nothing after the other's grant; the scenario is to show that it is refused")
		}
	})
}
