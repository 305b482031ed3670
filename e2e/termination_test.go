package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// ttl is the lease of the worker's locks.
const ttl = 5 * time.Second

// lastLine is the last event of the pod.
func (s *scenario) lastLine(pod string) journal.Event {
	s.Helper()
	var last journal.Event
	for _, e := range s.events() {
		if of(e, pod) {
			last = e
		}
	}
	return last
}

// TestTheApplicationIgnoresSIGTERM is scenario 3.
func TestTheApplicationIgnoresSIGTERM(t *testing.T) {
	long(t)
	s := begin(t, "s03-ignore")
	s.holderAndRival(
		s.podSpec(5*time.Second, s.worker("-bind", "-careless", "-ignore-term")),
		s.podSpec(5*time.Second, s.worker("-bind")))
	s.deletePod("holder", nil)
	enter := s.await(30*time.Second, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
	term := s.await(time.Second, "SIGTERM has arrived", is(journal.Term, "holder", time.Time{}))
	time.Sleep(time.Second) // for more lines of the holder, were it still alive
	death := s.lastLine("holder").At
	t.Logf("killed %s after SIGTERM, the rival had the lock %s later", death.Sub(term.At), enter.At.Sub(death))
	s.ending("pod deleted, the application ignores SIGTERM and is killed at the end of its grace", "bound", enter.At.Sub(death))
	s.nobodyOverlaps()
	if worked := death.Sub(term.At); worked < 4*time.Second {
		t.Errorf("the application worked for %s after SIGTERM; its grace is 5s", worked)
	}
	if took := enter.At.Sub(death); took > ttl+time.Second {
		t.Errorf("the rival had the lock %s after the application's death, want at most %s", took, ttl+time.Second)
	}
}

// classic puts the sidecar beside the application, as before Kubernetes 1.29.
func classic(spec corev1.PodSpec, env ...string) corev1.PodSpec {
	side := spec.InitContainers[0]
	side.RestartPolicy, side.StartupProbe = nil, nil
	side.Env = append([]corev1.EnvVar(nil), side.Env...)
	for i := 0; i < len(env); i += 2 {
		setEnv(&side, env[i], env[i+1])
	}
	spec.InitContainers = nil
	spec.Containers = append(spec.Containers, side)
	return spec
}

// TestAClassicSidecar is scenario 4: SIGTERM comes to the sidecar together with
// the application's, which works for another 3 s.
func TestAClassicSidecar(t *testing.T) {
	long(t)
	run := func(t *testing.T, name string, env ...string) (*scenario, time.Duration) {
		s := begin(t, "s04-classic-"+name)
		app := s.worker("-careless", "-exit-delay=3s", "-give-back")
		s.holderAndRival(classic(s.podSpec(10*time.Second, app), env...), s.podSpec(5*time.Second, s.worker()))
		s.deletePod("holder", nil)
		enter := s.await(30*time.Second, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
		end := s.await(30*time.Second, "the application has ended", is(journal.End, "holder", time.Time{}))
		time.Sleep(200 * time.Millisecond) // for the rival's beats
		overlap := journal.Overlap(s.events())
		t.Logf("the rival had the lock %s after the application's end, overlap %s", enter.At.Sub(end.At), overlap)
		s.ending("pod deleted, classic sidecar with SHUTDOWN_MODE="+name+", the application works for 3 s after SIGTERM", "plain", enter.At.Sub(s.lastHeld("holder")))
		return s, overlap
	}
	t.Run("drop", func(t *testing.T) {
		_, overlap := run(t, "drop", "LOCKSIDECAR_SHUTDOWN_MODE", "drop")
		if overlap < time.Second {
			t.Errorf("with drop the two overlapped for %s; the scenario is to show that they do", overlap)
		}
	})
	t.Run("release", func(t *testing.T) {
		s, _ := run(t, "release", "LOCKSIDECAR_SHUTDOWN_MODE", "release", "LOCKSIDECAR_SHUTDOWN_GRACE", "8s")
		s.nobodyOverlaps()
	})
}

// TestARollingUpdate is scenario 11.
func TestARollingUpdate(t *testing.T) {
	long(t)
	s := begin(t, "s11-rollout")
	d := s.deployment("app", 1, s.podSpec(10*time.Second, s.worker("-bind", "-exit-delay=200ms")))
	if d.Spec.Strategy.RollingUpdate == nil || *d.Spec.Strategy.RollingUpdate.MaxSurge == intstr.FromInt32(0) {
		t.Fatalf("the strategy is %+v, want a surge", d.Spec.Strategy)
	}
	holders := func(n int) {
		s.eventually(time.Minute, "the next pod has the lock", func() (bool, string) {
			return len(journal.Holds(s.events())) >= n, s.transcript()
		})
	}
	holders(1)
	deployments := s.client.AppsV1().Deployments(s.namespace)
	for n := 2; n <= 4; n++ {
		s.eventually(10*time.Second, "the template is changed", func() (bool, string) {
			var now *appsv1.Deployment
			now, err := deployments.Get(s.ctx(), "app", metav1.GetOptions{})
			if err == nil {
				now.Spec.Template.Annotations = map[string]string{"e2e/round": time.Now().Format(time.RFC3339Nano)}
				_, err = deployments.Update(s.ctx(), now, metav1.UpdateOptions{})
			}
			if err != nil {
				return false, err.Error()
			}
			return true, ""
		})
		holders(n)
	}
	s.nobodyOverlaps()
	holds := journal.Holds(s.events())
	for i := 1; i < len(holds); i++ {
		gap := holds[i].From.Sub(holds[i-1].To)
		t.Logf("handed over in %s", gap)
		s.ending("rolling update", "bound", gap)
		if gap > time.Second {
			t.Errorf("the lock was handed over in %s, want at most 1s", gap)
		}
	}
	if len(holds) != 4 {
		t.Errorf("%d had the lock, want one for each pod: 4", len(holds))
	}
}

// long leaves the test out of the short run.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short run")
	}
}
