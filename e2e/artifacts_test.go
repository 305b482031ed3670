package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// artifactsFolder is where what a failed scenario leaves is kept.
func artifactsFolder() string {
	if folder := os.Getenv("E2E_ARTIFACTS"); folder != "" {
		return folder
	}
	return "../artifacts/e2e"
}

// keepArtifacts writes pods, events, logs, the keys in Redis and the journal
// of the scenario into a folder. What cannot be had is told in its place.
func (s *scenario) keepArtifacts(ctx context.Context) {
	folder := filepath.Join(artifactsFolder(), s.namespace)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		s.Log("artifacts:", err)
		return
	}
	write := func(name string, content []byte, err error) {
		if err != nil {
			content = append(content, fmt.Sprintf("\n%v\n", err)...)
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			s.Log("artifacts:", err)
		}
	}
	core := s.client.CoreV1()
	pods, err := core.Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		write("pods.yaml", nil, err)
		pods = &corev1.PodList{}
	}
	for _, pod := range pods.Items {
		pod.ManagedFields = nil
		text, err := yaml.Marshal(pod)
		write(pod.Name+".yaml", text, err)
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			for suffix, previous := range map[string]bool{".log": false, ".before.log": true} {
				if previous && status.RestartCount == 0 {
					continue
				}
				options := &corev1.PodLogOptions{Container: status.Name, Previous: previous}
				text, err := core.Pods(s.namespace).GetLogs(pod.Name, options).DoRaw(ctx)
				write(pod.Name+"."+status.Name+suffix, text, err)
			}
		}
	}
	events, err := core.Events(s.namespace).List(ctx, metav1.ListOptions{})
	var lines strings.Builder
	if err == nil {
		for _, e := range events.Items {
			fmt.Fprintf(&lines, "%s %s %s/%s %s: %s\n", e.LastTimestamp.UTC().Format("15:04:05"), e.Type,
				e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	write("events.txt", []byte(lines.String()), err)
	keys, err := s.redisKeys(ctx)
	write("redis.txt", []byte(keys), err)
	write("journal.txt", []byte(s.transcript()), nil)
	s.Logf("artifacts are in %s", folder)
}

// redisKeys lists the scenario's keys in the shared Redis with the
// milliseconds that they have left. It leaves out their values, which are
// secret tokens.
func (s *scenario) redisKeys(ctx context.Context) (string, error) {
	found, err := s.redisCLI(ctx, "--scan", "--pattern", "*"+s.prefix()+"*")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, key := range strings.Fields(found) {
		left, err := s.redisCLI(ctx, "PTTL", key)
		if err != nil {
			return out.String(), err
		}
		fmt.Fprintf(&out, "%s %s ms\n", key, strings.TrimSpace(left))
	}
	return out.String(), nil
}
