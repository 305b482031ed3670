package charttest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// installed is admission with the chart's policies, rendered with the values.
func installed(t *testing.T, v values) *cluster {
	t.Helper()
	objects, _ := decode(t, documents(render(t, v)))
	return newCluster(t, objects)
}

// sidecar is the container of testdata/sidecar.yaml.
func sidecar(t *testing.T) corev1.Container {
	t.Helper()
	data, err := os.ReadFile("testdata/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c corev1.Container
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// injected is the pod as it should be once the sidecar is in it: made here
// once more, by other means than a patch.
func injected(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Namespace = "shop"
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "LOCKSIDECAR_URL" }) {
				c.Env = slices.Insert(c.Env, 0, corev1.EnvVar{Name: "LOCKSIDECAR_URL", Value: "http://127.0.0.1:5625"})
			}
		}
	}
	pod.Spec.InitContainers = slices.Insert(pod.Spec.InitContainers, 0, sidecar(t))
	size := resource.MustParse("16Mi")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "locksidecar-state", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}})
	return pod
}

func TestTheSidecarIsPutIntoEveryKindOfPod(t *testing.T) {
	c := installed(t, minimal())
	for name, shape := range shapes(t) {
		for kind, workload := range workloads {
			t.Run(kind+" "+name, func(t *testing.T) {
				pod := podOf(workload(shape))
				result := c.create(t, pod)
				if result.denied != nil {
					t.Fatal(result.denied)
				}
				if diff := cmp.Diff(injected(t, pod), result.pod); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				mustBeRestricted(t, result.pod)
			})
		}
	}
}

// mustBeRestricted runs the evaluator of Pod Security at the level restricted.
func mustBeRestricted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if result := podSecurity(t, pod); !result.Allowed {
		t.Errorf("not restricted: %s: %s", result.ForbiddenReason(), result.ForbiddenDetail())
	}
}

func podSecurity(t *testing.T, pod *corev1.Pod) policy.AggregateCheckResult {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	return policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
}

// TestPodSecurityTells is the test of mustBeRestricted.
func TestPodSecurityTells(t *testing.T) {
	pod := injected(t, podOf(workloads["bare"](shapes(t)["plain"])))
	mustBeRestricted(t, pod)
	yes := true
	pod.Spec.InitContainers[0].SecurityContext.AllowPrivilegeEscalation = &yes
	if podSecurity(t, pod).Allowed {
		t.Error("a sidecar that may gain privileges counts as restricted")
	}
}

func TestWhoIsLeftAlone(t *testing.T) {
	c := installed(t, minimal())
	unlabelled := plainPod()
	unlabelled.Labels = nil
	off := plainPod()
	off.Labels["locksidecar.io/inject"] = "false"
	classic := plainPod()
	classic.Spec.Containers = append(classic.Spec.Containers, corev1.Container{Name: "locksidecar", Image: "locksidecar:mine"})
	native := plainPod()
	always := corev1.ContainerRestartPolicyAlways
	native.Spec.InitContainers = []corev1.Container{{Name: "locksidecar", Image: "locksidecar:mine", RestartPolicy: &always}}
	for name, pod := range map[string]*corev1.Pod{"unlabelled": unlabelled, "labelled false": off, "there already, classic": classic, "there already, native": native} {
		t.Run(name, func(t *testing.T) {
			result := c.create(t, pod)
			if result.denied != nil {
				t.Fatal(result.denied)
			}
			pod.Namespace = "shop"
			if diff := cmp.Diff(pod, result.pod); diff != "" {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
		})
	}
}

// env is a container's environment, as far as it is not taken from elsewhere.
func env(c corev1.Container) map[string]string {
	set := map[string]string{}
	for _, e := range c.Env {
		set[strings.TrimPrefix(e.Name, "LOCKSIDECAR_")] = e.Value
	}
	return set
}

func TestAnnotations(t *testing.T) {
	c := installed(t, minimal())
	for _, tt := range []struct {
		annotation, value string
		env               map[string]string // what differs from the sidecar without annotations
	}{
		{"ttl", "5s", map[string]string{"DEFAULT_TTL": "5s"}},
		{"max-hold", "1h30m", map[string]string{"DEFAULT_MAX_HOLD": "1h30m"}},
		{"key-prefix", "shop:", map[string]string{"KEY_PREFIX": "shop:"}},
		{"key-prefix", "", map[string]string{"KEY_PREFIX": ""}},
		{"shutdown-mode", "drop", map[string]string{"SHUTDOWN_MODE": "drop"}},
		{"log-level", "debug", map[string]string{"LOG_LEVEL": "debug"}},
		{"redis-secret", "login", map[string]string{"REDIS_PASSWORD_FILE": "/etc/locksidecar/redis/password"}},
		{"redis-tls-secret", "certs", map[string]string{"REDIS_TLS": "true", "REDIS_TLS_CA_FILE": "/etc/locksidecar/tls/ca.crt"}},
		{"resources-profile", "guaranteed", nil},
		{"bin", "false", nil},
	} {
		t.Run(tt.annotation+"="+tt.value, func(t *testing.T) {
			result := c.create(t, plainPod(tt.annotation, tt.value))
			if result.denied != nil {
				t.Fatal(result.denied)
			}
			want := env(sidecar(t))
			maps.Copy(want, tt.env)
			if diff := cmp.Diff(want, env(result.pod.Spec.InitContainers[0])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestASecretIsMountedWhole(t *testing.T) {
	c := installed(t, minimal())
	result := c.create(t, plainPod("redis-secret", "login", "redis-tls-secret", "certs"))
	mode := int32(0o444)
	wantVolumes := []corev1.Volume{
		{Name: "locksidecar-redis", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login", DefaultMode: &mode}}},
		{Name: "locksidecar-redis-tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "certs", DefaultMode: &mode}}},
	}
	if diff := cmp.Diff(wantVolumes, result.pod.Spec.Volumes[1:]); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	// A subPath would keep the files as they were at the start.
	wantMounts := []corev1.VolumeMount{
		{Name: "locksidecar-state", MountPath: "/var/lib/locksidecar"},
		{Name: "locksidecar-redis", MountPath: "/etc/locksidecar/redis", ReadOnly: true},
		{Name: "locksidecar-redis-tls", MountPath: "/etc/locksidecar/tls", ReadOnly: true},
	}
	if diff := cmp.Diff(wantMounts, result.pod.Spec.InitContainers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if app := result.pod.Spec.Containers[0]; len(app.VolumeMounts) > 0 {
		t.Errorf("the application has mounts: %v", app.VolumeMounts)
	}
}

func TestTheProfileGuaranteed(t *testing.T) {
	c := installed(t, minimal())
	for _, ours := range c.create(t, plainPod("resources-profile", "guaranteed", "bin", "true")).pod.Spec.InitContainers {
		if len(ours.Resources.Limits) != 2 || !cmp.Equal(ours.Resources.Limits, ours.Resources.Requests) {
			t.Errorf("%s: %v", ours.Name, ours.Resources)
		}
	}
}

func TestTheProgramForApplicationsWithoutCurl(t *testing.T) {
	c := installed(t, minimal())
	pod := plainPod("bin", "true")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "helper", Image: "helper:1",
		VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}})
	pod.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "app:1"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	result := c.create(t, pod)
	if result.denied != nil {
		t.Fatal(result.denied)
	}
	mount := corev1.VolumeMount{Name: "locksidecar-bin", MountPath: "/opt/locksidecar", ReadOnly: true}
	for _, c := range result.pod.Spec.Containers {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, mount) }) {
			t.Errorf("%s has the mounts %v", c.Name, c.VolumeMounts)
		}
	}
	names := func(containers []corev1.Container) (names []string) {
		for _, c := range containers {
			names = append(names, c.Name)
		}
		return names
	}
	if got := names(result.pod.Spec.InitContainers); !slices.Equal(got, []string{"locksidecar", "locksidecar-bin", "migrate"}) {
		t.Fatalf("init containers %v", got)
	}
	copier := result.pod.Spec.InitContainers[1]
	if copier.RestartPolicy != nil || !slices.Equal(copier.Args, []string{"install", "/opt/locksidecar"}) || copier.Image != result.pod.Spec.InitContainers[0].Image {
		t.Errorf("%+v", copier)
	}
	// Together with what the application would have to say for itself.
	for i := range result.pod.Spec.Containers {
		result.pod.Spec.Containers[i].SecurityContext = copier.SecurityContext
	}
	result.pod.Spec.InitContainers[2].SecurityContext = copier.SecurityContext
	mustBeRestricted(t, result.pod)
	last := result.pod.Spec.Volumes[len(result.pod.Spec.Volumes)-1]
	if last.Name != "locksidecar-bin" || last.EmptyDir == nil {
		t.Errorf("volume %+v", last)
	}
}

func TestPullSecretsAreAdded(t *testing.T) {
	c := installed(t, minimal().at("imagePullSecrets", []any{map[string]any{"name": "registry"}, map[string]any{"name": "theirs"}}))
	pod := plainPod()
	theirs, registry := corev1.LocalObjectReference{Name: "theirs"}, corev1.LocalObjectReference{Name: "registry"}
	if got := c.create(t, pod).pod.Spec.ImagePullSecrets; !slices.Equal(got, []corev1.LocalObjectReference{registry, theirs}) {
		t.Errorf("to none: %v", got)
	}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{theirs}
	if got := c.create(t, pod).pod.Spec.ImagePullSecrets; !slices.Equal(got, []corev1.LocalObjectReference{theirs, registry}) {
		t.Errorf("to one that is there: %v", got)
	}
}

// TestEveryCIFileInjects: whatever the values, pods of all shapes come out
// restricted, and a second pass changes nothing.
func TestEveryCIFileInjects(t *testing.T) {
	for name, v := range ciValues(t) {
		if injector, ok := v["injector"].(map[string]any); ok && injector["enabled"] == false {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := installed(t, v)
			for shape, template := range shapes(t) {
				template.Annotations = map[string]string{"locksidecar.io/bin": "true", "locksidecar.io/shutdown-mode": "guarded", "locksidecar.io/ttl": "10s"}
				result := c.create(t, podOf(workloads["Deployment"](template)))
				if result.denied != nil {
					t.Errorf("%s: %v", shape, result.denied)
					continue
				}
				mustBeRestricted(t, result.pod)
				set := env(result.pod.Spec.InitContainers[0])
				if set["SHUTDOWN_MODE"] != "guarded" || set["SHUTDOWN_GRACE"] != "1500ms" || set["DEFAULT_TTL"] != "10s" {
					t.Errorf("%s: %v", shape, set)
				}
			}
		})
	}
}

// TestTheLibraryChartMakesTheSameContainer as the policy puts into pods.
func TestTheLibraryChartMakesTheSameContainer(t *testing.T) {
	for name, v := range ciValues(t) {
		t.Run(name, func(t *testing.T) {
			library := values{}
			for _, key := range []string{"image", "redis", "locks", "termination", "api", "admin", "probes", "resources", "extraEnv"} {
				if v[key] != nil {
					library.at("locksidecar."+key, v[key])
				}
			}
			library.at("locksidecar.bin", true)
			files, err := helm4("testdata/app", library, kube)
			if err != nil {
				t.Fatal(err)
			}
			objects, _ := decode(t, documents(files))
			byHand := objects[0].(*corev1.Pod)

			v.at("injector.enabled", true)
			injected := installed(t, v).create(t, plainPod("bin", "true")).pod
			if diff := cmp.Diff(injected.Spec.InitContainers, byHand.Spec.InitContainers); diff != "" {
				t.Errorf("init containers (-injected +library):\n%s", diff)
			}
			if diff := cmp.Diff(injected.Spec.Containers, byHand.Spec.Containers); diff != "" {
				t.Errorf("containers (-injected +library):\n%s", diff)
			}
			if diff := cmp.Diff(injected.Spec.Volumes, byHand.Spec.Volumes); diff != "" {
				t.Errorf("volumes (-injected +library):\n%s", diff)
			}
			three, err := helm3("testdata/app", library, kube)
			if diff := cmp.Diff(files, three); diff != "" || err != nil {
				t.Errorf("Helm 3: %v (-Helm 4 +Helm 3):\n%s", err, diff)
			}
		})
	}
}

func TestTheLibraryChartClassic(t *testing.T) {
	files, err := helm4("testdata/app", values{}.at("locksidecar.form", "classic").at("locksidecar.bin", true), "v1.27.0")
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := decode(t, documents(files))
	pod := objects[0].(*corev1.Pod)
	classic := pod.Spec.Containers[1]
	if classic.Name != "locksidecar" || classic.RestartPolicy != nil || len(pod.Spec.InitContainers) != 1 {
		t.Errorf("%+v", pod.Spec)
	}
	if set := env(classic); set["SHUTDOWN_MODE"] != "release" || set["SHUTDOWN_GRACE"] != "25s" {
		t.Errorf("%v", set)
	}
}
