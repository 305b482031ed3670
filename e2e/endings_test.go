package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// TestEndings measures the ways in which a pod ends that no scenario is about.
func TestEndings(t *testing.T) {
	long(t)
	for _, tt := range []struct {
		name, how, lock string
		app             []string // arguments of the worker
		end             func(s *scenario)
		overlap         bool // is to be expected
	}{
		{name: "delete-plain", how: "pod deleted, the application ends at once", lock: "plain",
			end: func(s *scenario) { s.deletePod("holder", nil) }},
		{name: "delete-bound", how: "pod deleted, the application ends at once", lock: "bound",
			end: func(s *scenario) { s.deletePod("holder", nil) }},
		{name: "evict-plain", how: "pod evicted by the API", lock: "plain", end: evict},
		{name: "evict-bound", how: "pod evicted by the API", lock: "bound", end: evict},
		{name: "force-plain", how: "pod deleted by force (grace 0), the application ignores SIGTERM", lock: "plain",
			app: []string{"-ignore-term", "-careless"}, overlap: true,
			end: func(s *scenario) { s.deletePod("holder", to(int64(0))) }},
		{name: "force-bound", how: "pod deleted by force (grace 0), the application ignores SIGTERM", lock: "bound",
			app: []string{"-ignore-term", "-careless"},
			end: func(s *scenario) { s.deletePod("holder", to(int64(0))) }},
		{name: "grace-plain", how: "pod deleted, the application ignores SIGTERM and is killed at the end of its grace", lock: "plain",
			app: []string{"-ignore-term", "-careless"}, overlap: true,
			end: func(s *scenario) { s.deletePod("holder", nil) }},
		{name: "oom-bound", how: "the application is killed for its memory (OOM)", lock: "bound",
			end: func(s *scenario) { s.signal("holder", "app", "USR1") }},
		{name: "crash-plain", how: "the application crashes, its lock has max_hold=8s", lock: "plain",
			app: []string{"-max-hold=8s"}, end: func(s *scenario) { s.signal("holder", "app", "KILL") }},
		{name: "sidecar-oom", how: "the sidecar is killed, as for its memory (OOM)", lock: "bound", app: []string{"-rounds=1"},
			end: func(s *scenario) { s.signal("holder", sidecarName, "KILL") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := begin(t, "end-"+tt.name)
			bind := "-bind=" + map[string]string{"plain": "false", "bound": "true"}[tt.lock]
			holder := s.podSpec(5*time.Second, s.worker(append(tt.app, bind)...))
			holder.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
			s.holderAndRival(holder, s.podSpec(time.Second, s.worker(bind)))
			tt.end(s)
			enter := s.await(time.Minute, "the rival has the lock", is(journal.Enter, "rival", time.Time{}))
			time.Sleep(500 * time.Millisecond) // for more lines of the holder, were it alive
			took := enter.At.Sub(s.lastHeld("holder"))
			t.Logf("the rival had the lock after %s, overlap %s", took, journal.Overlap(s.events()))
			s.ending(tt.how, tt.lock, took)
			if !tt.overlap {
				s.nobodyOverlaps()
			}
		})
	}
}

// lastHeld is when the pod last believed to hold the lock.
func (s *scenario) lastHeld(pod string) time.Time {
	s.Helper()
	var last time.Time
	for _, h := range journal.Holds(s.events()) {
		if of(journal.Event{Worker: h.Worker}, pod) {
			last = h.To
		}
	}
	return last
}

func evict(s *scenario) {
	err := s.client.PolicyV1().Evictions(s.namespace).Evict(s.ctx(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "holder", Namespace: s.namespace},
	})
	if err != nil {
		s.Fatal(err)
	}
}
