package e2e

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func to[T any](v T) *T { return &v }

// restricted is the security context of a container that Pod Security's
// profile restricted lets in.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsNonRoot: to(true), RunAsUser: to(int64(65532)), RunAsGroup: to(int64(65532)),
		ReadOnlyRootFilesystem: to(true), AllowPrivilegeEscalation: to(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// sidecarName is the name of the sidecar's container.
const sidecarName = "locksidecar"

// sidecar is the container of a native sidecar.
func (s *scenario) sidecar() corev1.Container {
	return corev1.Container{
		Name: sidecarName, Image: s.images.sidecar, ImagePullPolicy: corev1.PullNever,
		RestartPolicy: to(corev1.ContainerRestartPolicyAlways),
		Env: []corev1.EnvVar{
			{Name: "LOCKSIDECAR_REDIS_ADDRS", Value: s.redis},
			{Name: "LOCKSIDECAR_KEY_PREFIX", Value: s.prefix()},
			{Name: "LOCKSIDECAR_SHUTDOWN_MODE", Value: "guarded"},
			{Name: "LOCKSIDECAR_STATE_DIR", Value: "/state"},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		},
		Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 5626}},
		StartupProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/startupz", Port: intstr.FromInt32(5626)}},
			PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 30,
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("24Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: restricted(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "locksidecar-state", MountPath: "/state"}},
	}
}

// setEnv sets a variable of the container.
func setEnv(c *corev1.Container, name, value string) {
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i].Value = value
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// worker is an application container that runs e2e/worker.
func (s *scenario) worker(args ...string) corev1.Container {
	return corev1.Container{
		Name: "app", Image: s.images.worker, ImagePullPolicy: corev1.PullNever, Args: args,
		SecurityContext: restricted(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "journal", MountPath: "/journal"}},
	}
}

// script is an application container that runs a shell script with curl.
func (s *scenario) script(text string) corev1.Container {
	app := s.worker()
	app.Image, app.Command = s.images.tools, []string{"/bin/sh", "-c", text}
	return app
}

// podSpec is a pod of the application beside a native sidecar.
func (s *scenario) podSpec(grace time.Duration, app corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers: []corev1.Container{s.sidecar()},
		Containers:     []corev1.Container{app},
		Volumes: []corev1.Volume{
			{Name: "locksidecar-state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "journal", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: journals + "/" + s.namespace, Type: to(corev1.HostPathDirectory)}}},
		},
		TerminationGracePeriodSeconds: to(int64(grace.Seconds())),
		EnableServiceLinks:            to(false),
		AutomountServiceAccountToken:  to(false),
	}
}

// startPod creates the pod.
func (s *scenario) startPod(name string, spec corev1.PodSpec) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	if _, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx(), pod, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// deletePod begins the deletion; grace nil is the pod's own.
func (s *scenario) deletePod(name string, grace *int64) {
	s.Helper()
	if err := s.client.CoreV1().Pods(s.namespace).Delete(s.ctx(), name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
		s.Fatal(err)
	}
}

func (s *scenario) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod
}

// containerStatus is that of one container, of both lists.
func containerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
