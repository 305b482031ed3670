package e2e

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// withCurl takes and gives back a lock without end, and writes down what the
// answers made it believe. $$.worker is one run of the script.
const withCurl = `
url=http://127.0.0.1:5625/locks/job worker=$HOSTNAME.$(date +%s%N)
tell() { echo "$(date +%s%N) $1 job $2 $worker" >>"/journal/$worker.log"; }
while :; do
	answer=$(curl -fsS -H 'Accept: text/plain' -d wait=20s -d ttl=5s -d "owner=$worker" "$url") || { sleep 0.1; continue; }
	eval "$answer"
	tell enter "$fencing_token"
	sleep 0.02
	tell exit "$fencing_token"
	curl -fsS -X DELETE "$url?fencing_token=$fencing_token"
done
`

// deployment runs replicas of the pod.
func (s *scenario) deployment(name string, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	s.Helper()
	labels := map[string]string{"app": name}
	d, err := s.client.AppsV1().Deployments(s.namespace).Create(s.ctx(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// TestTwoReplicasContendWithCurl is scenario 1.
func TestTwoReplicasContendWithCurl(t *testing.T) {
	s := begin(t, "s01-contend")
	s.deployment("app", 2, s.podSpec(2*time.Second, s.script(withCurl)))
	workers := func() map[string]int {
		took := map[string]int{}
		for _, h := range journal.Holds(s.events()) {
			took[h.Worker]++
		}
		return took
	}
	s.eventually(time.Minute, "both replicas have had the lock", func() (bool, string) {
		return len(workers()) == 2, s.transcript()
	})
	time.Sleep(time.Minute) // what the scenario is: a minute of contention
	took := workers()
	s.nobodyOverlaps()
	for worker, n := range took {
		t.Logf("%s had the lock %d times", worker, n)
		if n < 100 {
			t.Errorf("%s had the lock %d times in a minute; they do not contend", worker, n)
		}
	}
	if len(took) != 2 {
		t.Errorf("%d scripts had the lock, want 2: a container has been restarted", len(took))
	}
}
