package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// injected is the label that asks for the sidecar.
var injected = map[string]string{"locksidecar.io/inject": "true"}

// helm runs the Helm that e2e/go.mod pins.
type helm struct {
	*scenario
	program, kubeconfig string
}

func newHelm(s *scenario) helm {
	s.Helper()
	folder := s.buildTools(map[string]string{"helm": "helm.sh/helm/v4/cmd/helm"})
	return helm{s, filepath.Join(folder, "helm"), filepath.Join(folder, "kubeconfig")}
}

func (h helm) run(args ...string) string {
	h.Helper()
	command := exec.CommandContext(h.ctx(), h.program, append(args, "--kubeconfig", h.kubeconfig, "--namespace", h.namespace)...)
	out, err := command.CombinedOutput()
	if err != nil {
		h.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// values are those of the scenario: only its own namespace is meant.
func (h helm) values(more ...string) []string {
	repository, tag, _ := strings.Cut(h.images.sidecar, ":")
	values := append([]string{
		"redis.addresses={" + h.redis + "}", "locks.keyPrefix=" + h.prefix(),
		"image.repository=" + repository, "image.tag=" + tag, "image.pullPolicy=Never",
		`injector.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=` + h.namespace,
	}, more...)
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// TestTheChart is scenario 12.
func TestTheChart(t *testing.T) {
	s := begin(t, "s12-chart")
	h := newHelm(s)
	bare := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: s.quiet()}
	}
	create := func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		made, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ready(s.ctx(), s.namespace, pod.Name, time.Minute); err != nil {
			t.Fatal(err)
		}
		return made
	}
	create(bare("before", injected))

	h.run(append([]string{"install", "locks", "../charts/locksidecar"}, h.values()...)...)
	s.injects("30s")
	t.Run("matrix", s.matrix)
	s.restrict()
	first := create(bare("first", injected))
	if first.Spec.InitContainers[0].Name != sidecarName {
		t.Fatalf("the sidecar was not put into the pod: %+v", first.Spec.InitContainers)
	}
	s.workloads()
	t.Logf("helm test:\n%s", h.run("test", "locks", "--timeout", "2m"))

	h.run(append([]string{"upgrade", "locks", "../charts/locksidecar"}, h.values("locks.ttl=10s")...)...)
	s.injects("10s")
	h.run("rollback", "locks", "1")
	s.injects("30s")
	h.run("uninstall", "locks", "--wait")
	s.injects("")

	for _, name := range []string{"before", "first"} {
		pod := s.pod(name)
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if status.RestartCount != 0 || status.State.Running == nil {
				t.Errorf("container %s of the running pod %s was touched: %+v", status.Name, name, status)
			}
		}
		if !reflect.DeepEqual(pod.Spec.InitContainers, map[string][]corev1.Container{"before": nil, "first": first.Spec.InitContainers}[name]) {
			t.Errorf("the init containers of the running pod %s are others now: %+v", name, pod.Spec.InitContainers)
		}
	}
}

// restrict has the namespace take only pods of Pod Security's profile
// restricted.
func (s *scenario) restrict() {
	s.Helper()
	space, err := s.client.CoreV1().Namespaces().Get(s.ctx(), s.namespace, metav1.GetOptions{})
	if err == nil {
		space.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		_, err = s.client.CoreV1().Namespaces().Update(s.ctx(), space, metav1.UpdateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// quiet is a pod whose application does nothing, without a volume of the node,
// which the profile restricted does not let in.
func (s *scenario) quiet() corev1.PodSpec {
	app := s.script("sleep 100000")
	app.VolumeMounts = nil
	spec := s.podSpec(10*time.Second, app)
	spec.InitContainers, spec.Volumes = nil, nil
	return spec
}

// dryRun is what the API server would make of the pod.
func (s *scenario) dryRun(pod *corev1.Pod) (*corev1.Pod, error) {
	pod = pod.DeepCopy()
	pod.Name = "dry-run"
	return s.client.CoreV1().Pods(s.namespace).Create(s.ctx(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// injects waits until new pods get a sidecar with that lease, or none if it is
// empty. The API server learns of a policy a moment after it was written.
func (s *scenario) injects(lease string) {
	s.Helper()
	s.eventually(30*time.Second, "new pods get a sidecar with the lease "+lease, func() (bool, string) {
		pod, err := s.dryRun(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: injected}, Spec: s.quiet()})
		if err != nil {
			return false, err.Error()
		}
		if len(pod.Spec.InitContainers) == 0 {
			return lease == "", "there is none"
		}
		for _, env := range pod.Spec.InitContainers[0].Env {
			if env.Name == "LOCKSIDECAR_DEFAULT_TTL" {
				return env.Value == lease, "it is " + env.Value
			}
		}
		return false, "it has no lease"
	})
}

// matrix tries pods of many shapes. What is added is the same to each, and
// nothing else is changed.
func (s *scenario) matrix(t *testing.T) {
	env := corev1.EnvVar{Name: "LOCKSIDECAR_URL", Value: "http://127.0.0.1:5625"}
	var side *corev1.Container
	for name, change := range map[string]func(*corev1.Pod){
		"bare": func(*corev1.Pod) {},
		"env":  func(p *corev1.Pod) { setEnv(&p.Spec.Containers[0], "OTHER", "value") },
		"url of its own": func(p *corev1.Pod) {
			setEnv(&p.Spec.Containers[0], "LOCKSIDECAR_URL", "http://localhost:5625")
		},
		"init container": func(p *corev1.Pod) {
			init := p.Spec.Containers[0]
			init.Name = "init"
			p.Spec.InitContainers = []corev1.Container{init}
		},
		"volume": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		},
		"two containers": func(p *corev1.Pod) {
			second := p.Spec.Containers[0]
			second.Name = "second"
			p.Spec.Containers = append(p.Spec.Containers, second)
		},
	} {
		plain := &corev1.Pod{Spec: s.quiet()}
		change(plain)
		want, err := s.dryRun(plain)
		if err != nil {
			t.Fatal(err)
		}
		plain.Labels = injected
		got, err := s.dryRun(plain)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Spec.InitContainers) == 0 || got.Spec.InitContainers[0].Name != sidecarName {
			t.Errorf("%s: the sidecar is not the first init container", name)
			continue
		}
		if side == nil {
			side = got.Spec.InitContainers[0].DeepCopy()
		} else if !reflect.DeepEqual(*side, got.Spec.InitContainers[0]) {
			t.Errorf("%s: the sidecar is another one:\n%s\nand\n%s", name, asJSON(*side), asJSON(got.Spec.InitContainers[0]))
		}
		// What is left without the sidecar is what there was.
		added := func(c *corev1.Container) {
			for _, e := range c.Env {
				if e.Name == env.Name {
					return
				}
			}
			c.Env = append([]corev1.EnvVar{env}, c.Env...) // first, so that others can refer to it
		}
		for i := range want.Spec.Containers {
			added(&want.Spec.Containers[i])
		}
		for i := range want.Spec.InitContainers {
			added(&want.Spec.InitContainers[i])
		}
		got.Spec.InitContainers = got.Spec.InitContainers[1:]
		got.Spec.Volumes = without(got.Spec.Volumes, "locksidecar-state")
		if a, b := asJSON(got.Spec), asJSON(want.Spec); a != b {
			t.Errorf("%s: without the sidecar the pod is\n%s\nwant\n%s", name, a, b)
		}
	}
	if side == nil {
		t.Fatal("no pod has got the sidecar")
	}
	if side.Image != s.images.sidecar || side.RestartPolicy == nil || *side.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
		side.Resources.Limits.Memory().String() != "64Mi" || side.Resources.Requests.Cpu().String() != "10m" {
		t.Errorf("the sidecar is %s", asJSON(side))
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		says   string
	}{
		"host network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "none is put into pods with hostNetwork"},
		"unknown annotation": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{"locksidecar.io/tll": "5s"}
		}, "unknown annotation locksidecar.io/tll"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: injected}, Spec: s.quiet()}
		tt.change(pod)
		// The guard may be known to the API server a moment later than the injector.
		s.in(t).eventually(30*time.Second, name+" is refused with: "+tt.says, func() (bool, string) {
			_, err := s.dryRun(pod)
			return err != nil && strings.Contains(err.Error(), tt.says), fmt.Sprint(err)
		})
	}
	already, err := s.dryRun(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: injected}, Spec: func() corev1.PodSpec {
		spec := s.quiet()
		mine := s.sidecar()
		mine.VolumeMounts, mine.Env = nil, []corev1.EnvVar{{Name: "LOCKSIDECAR_REDIS_ADDRS", Value: "mine:6379"}}
		spec.InitContainers = []corev1.Container{mine}
		return spec
	}()})
	if err != nil || len(already.Spec.InitContainers) != 1 || already.Spec.InitContainers[0].Env[0].Value != "mine:6379" {
		t.Errorf("a pod that has a sidecar was changed: %v", err)
	}
}

func without(volumes []corev1.Volume, name string) []corev1.Volume {
	var rest []corev1.Volume
	for _, v := range volumes {
		if v.Name != name {
			rest = append(rest, v)
		}
	}
	return rest
}

func asJSON(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// workloads tries that the pods of all kinds of workloads get the sidecar and
// run, which is what the profile restricted would prevent.
func (s *scenario) workloads() {
	s.Helper()
	template := func(name string) corev1.PodTemplateSpec {
		labels := map[string]string{"app": name}
		for k, v := range injected {
			labels[k] = v
		}
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: s.quiet()}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	job := batchv1.JobSpec{Template: template("job")}
	job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	cron := *job.DeepCopy()
	cron.Template.Labels["app"] = "cron"
	var errs [5]error
	_, errs[0] = s.client.AppsV1().Deployments(s.namespace).Create(s.ctx(), &appsv1.Deployment{ObjectMeta: meta("deployment"),
		Spec: appsv1.DeploymentSpec{Selector: selector("deployment"), Template: template("deployment")}}, metav1.CreateOptions{})
	_, errs[1] = s.client.AppsV1().StatefulSets(s.namespace).Create(s.ctx(), &appsv1.StatefulSet{ObjectMeta: meta("statefulset"),
		Spec: appsv1.StatefulSetSpec{Selector: selector("statefulset"), Template: template("statefulset")}}, metav1.CreateOptions{})
	_, errs[2] = s.client.AppsV1().DaemonSets(s.namespace).Create(s.ctx(), &appsv1.DaemonSet{ObjectMeta: meta("daemonset"),
		Spec: appsv1.DaemonSetSpec{Selector: selector("daemonset"), Template: template("daemonset")}}, metav1.CreateOptions{})
	_, errs[3] = s.client.BatchV1().Jobs(s.namespace).Create(s.ctx(), &batchv1.Job{ObjectMeta: meta("job"), Spec: job}, metav1.CreateOptions{})
	_, errs[4] = s.client.BatchV1().CronJobs(s.namespace).Create(s.ctx(), &batchv1.CronJob{ObjectMeta: meta("cron"),
		Spec: batchv1.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent, JobTemplate: batchv1.JobTemplateSpec{Spec: cron}}}, metav1.CreateOptions{})
	for _, err := range errs {
		if err != nil {
			s.Fatal(err)
		}
	}
	for _, kind := range []string{"deployment", "statefulset", "daemonset", "job", "cron"} {
		s.eventually(90*time.Second, "the pod of the "+kind+" runs with the sidecar", func() (bool, string) {
			pods, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx(), metav1.ListOptions{LabelSelector: "app=" + kind})
			if err != nil || len(pods.Items) == 0 {
				return false, "there is no pod yet"
			}
			pod := pods.Items[0]
			return containerStatus(&pod, sidecarName).State.Running != nil && containerStatus(&pod, "app").State.Running != nil,
				asJSON(pod.Status)
		})
	}
}
