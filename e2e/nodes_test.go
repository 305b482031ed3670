package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// signal sends a signal to the first process of a running container, from its
// node, as the kernel would.
func (s *scenario) signal(pod, container, signal string) {
	s.Helper()
	if out, err := s.trySignal(pod, container, signal); err != nil {
		s.Fatalf("signal %s to %s of %s: %v\n%s", signal, container, pod, err, out)
	}
}

func (s *scenario) trySignal(pod, container, signal string) (string, error) {
	s.Helper()
	n, err := s.node(s.pod(pod).Spec.NodeName)
	if err != nil {
		return "", err
	}
	script := "kill -" + signal + " $(" + s.pidOf(pod, container) + ")"
	var out strings.Builder
	err = n.CommandContext(s.ctx(), "bash", "-c", script).SetStdout(&out).SetStderr(&out).Run()
	return out.String(), err
}

// pidOf is a shell command that prints, in its node, the number of the running
// container's first process.
func (s *scenario) pidOf(pod, container string) string {
	return fmt.Sprintf(`crictl inspect --output go-template --template '{{.info.pid}}' $(crictl ps -q --state running `+
		`--name '^%s$' --label io.kubernetes.pod.name=%s --label io.kubernetes.pod.namespace=%s)`, container, pod, s.namespace)
}

// docker runs the engine's client.
func (s *scenario) docker(args ...string) {
	s.Helper()
	if out, err := exec.CommandContext(s.ctx(), "docker", args...).CombinedOutput(); err != nil {
		s.Fatalf("docker %q: %v\n%s", args, err, out)
	}
}

// restartNode starts a node that was killed, for the scenarios after this one.
func (s *scenario) restartNode(name string) {
	if out, err := exec.Command("docker", "start", name).CombinedOutput(); err != nil {
		s.Errorf("docker start %s: %v\n%s", name, err, out)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			for _, condition := range node.Status.Conditions {
				// The heartbeat tells that the status is not the one before.
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && time.Since(condition.LastHeartbeatTime.Time) < 10*time.Second {
					return
				}
			}
		}
		time.Sleep(time.Second)
	}
	s.Errorf("the node %s is not ready again", name)
}
