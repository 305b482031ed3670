package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// redisSpace is the namespace of the Redis that scenarios share.
const redisSpace = "e2e-redis"

var redisOnce struct {
	sync.Once
	address string
	err     error
}

// sharedRedis is the address of the Redis for all scenarios that do it no
// harm.
func sharedRedis(t *testing.T) string {
	t.Helper()
	redisOnce.Do(func() {
		redisOnce.address, redisOnce.err = theCluster.startRedis(context.Background(), redisSpace, "redis", "--save", "")
	})
	if redisOnce.err != nil {
		t.Fatal(redisOnce.err)
	}
	return redisOnce.address
}

// redisPod is a pod that runs a Redis server.
func (c *theirCluster) redisPod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "redis", Image: c.images.redis, ImagePullPolicy: corev1.PullNever,
				Args: append([]string{"--protected-mode", "no", "--bind", "0.0.0.0", "--dir", "/data"}, args...),
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(6379)}},
					PeriodSeconds: 1,
				},
				SecurityContext: restricted(),
				VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes:                       []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			TerminationGracePeriodSeconds: to(int64(1)),
			EnableServiceLinks:            to(false),
			AutomountServiceAccountToken:  to(false),
			// A node that a scenario kills is not to take it along.
			NodeSelector: map[string]string{"kubernetes.io/hostname": c.nodes[0].String()},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// startRedis runs a Redis pod with a service of the same name and waits until
// it answers. Where it runs already it is left alone.
func (c *theirCluster) startRedis(ctx context.Context, namespace, name string, args ...string) (string, error) {
	core := c.client.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !exists(err) {
		return "", err
	}
	if err := c.awaitAccount(ctx, namespace); err != nil {
		return "", err
	}
	_, err = core.Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 6379}}},
	}, metav1.CreateOptions{})
	if err != nil && !exists(err) {
		return "", err
	}
	if _, err = core.Pods(namespace).Create(ctx, c.redisPod(name, args...), metav1.CreateOptions{}); err != nil && !exists(err) {
		return "", err
	}
	return fmt.Sprintf("%s.%s.svc.cluster.local:6379", name, namespace), c.ready(ctx, namespace, name, time.Minute)
}

// ready waits until the pod is.
func (c *theirCluster) ready(ctx context.Context, namespace, name string, within time.Duration) error {
	var last corev1.PodStatus
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		last = pod.Status
		for _, condition := range last.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
	}
	return fmt.Errorf("pod %s/%s was not ready within %s: %s %+v", namespace, name, within, last.Phase, last.ContainerStatuses)
}

// redisCLI asks the shared Redis.
func (s *scenario) redisCLI(ctx context.Context, args ...string) (string, error) {
	return s.execute(ctx, redisSpace, "redis", "redis", append([]string{"/bin/redis-cli"}, args...)...)
}
