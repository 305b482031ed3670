package charttest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// change makes a labelled pod that differs from the plain one.
func change(f func(*corev1.Pod)) *corev1.Pod {
	pod := plainPod()
	f(pod)
	return pod
}

func TestPodsThatWouldLackTheirLockAreDenied(t *testing.T) {
	c := installed(t, minimal())
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"hostNetwork", change(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "none is put into pods with hostNetwork"},
		{"Windows", change(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), "none is put into pods for Windows"},
		{"nodes with Windows", change(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"} }), "none is put into pods for Windows"},
		{"a label that is no word of ours", change(func(p *corev1.Pod) { p.Labels["locksidecar.io/inject"] = "yes" }), "is yes; it takes true and false"},
		{"an unknown annotation", plainPod("tll", "5s"), "unknown annotation locksidecar.io/tll; known after locksidecar.io/ are bin, key-prefix, log-level, max-hold, redis-secret, redis-tls-secret, resources-profile, shutdown-mode, ttl"},
		{"no duration", plainPod("ttl", "5"), "locksidecar.io/ttl is a duration of at least 1s"},
		{"too short a lease", plainPod("ttl", "900ms"), "locksidecar.io/ttl is a duration of at least 1s"},
		{"too long a lease", plainPod("ttl", "25h"), "locksidecar.io/ttl is a duration of at least 1s and at most 24h"},
		{"too long a hold", plainPod("max-hold", "9000h"), "locksidecar.io/max-hold is a duration of at most 8760h"},
		{"a hold shorter than the lease", plainPod("max-hold", "29s"), "locks may be held for 29s, which is less than their lease of 30s"},
		{"a lease longer than the hold", plainPod("ttl", "2h", "max-hold", "1h"), "locks may be held for 1h, which is less than their lease of 2h"},
		{"no duration to hold", plainPod("max-hold", "ever"), "locksidecar.io/max-hold is a duration"},
		{"a brace in the prefix", plainPod("key-prefix", "a{b}"), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"a backslash in the prefix", plainPod("key-prefix", `a\b`), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"a caret in the prefix", plainPod("key-prefix", "a^"), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"a space in the prefix", plainPod("key-prefix", "a b"), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"a hash at its front", plainPod("key-prefix", "#a"), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"a long prefix", plainPod("key-prefix", strings.Repeat("ä", 65)), "locksidecar.io/key-prefix has at most 128 bytes"},
		{"no shutdown mode", plainPod("shutdown-mode", "keep"), "locksidecar.io/shutdown-mode is drop, guarded or release"},
		{"no log level", plainPod("log-level", "trace"), "locksidecar.io/log-level is debug, info, warn or error"},
		{"no profile", plainPod("resources-profile", "large"), "locksidecar.io/resources-profile is burstable or guaranteed"},
		{"neither yes nor no", plainPod("bin", "1"), "locksidecar.io/bin is true or false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if result := c.create(t, tt.pod); result.denied == nil || !strings.Contains(result.denied.Error(), tt.want) {
				t.Errorf("denied with: %v\nwant it denied with: %s", result.denied, tt.want)
			}
		})
	}
}

// TestALeaseIsBoundByTheRestartGuard, as the program would refuse it.
func TestALeaseIsBoundByTheRestartGuard(t *testing.T) {
	c := installed(t, ciValues(t)["redlock"])
	if result := c.create(t, plainPod("ttl", "61s")); result.denied == nil || !strings.Contains(result.denied.Error(), "at most 60s") {
		t.Errorf("61s: %v", result.denied)
	}
	if result := c.create(t, plainPod("ttl", "60s", "max-hold", "0s")); result.denied != nil {
		t.Errorf("60s: %v", result.denied)
	}
}

// TestALabelWithoutTheInjector: the policy that adds the sidecar may be away,
// or meant for other namespaces.
func TestALabelWithoutTheInjector(t *testing.T) {
	c := installed(t, minimal().at("injector.enabled", false))
	if result := c.create(t, plainPod()); result.denied == nil || !strings.Contains(result.denied.Error(), "the policy that adds it is not there or does not match") {
		t.Errorf("%v", result.denied)
	}
}

func TestNamespacesThatAreNotSelected(t *testing.T) {
	c := installed(t, minimal().at("injector.namespaceSelector.matchLabels", map[string]any{"locks": "yes"}))
	result := c.create(t, plainPod())
	if result.denied != nil || len(result.pod.Spec.InitContainers) > 0 {
		t.Errorf("%v, %v", result.denied, result.pod.Spec.InitContainers)
	}
}

func withEnv(pairs ...string) *corev1.Pod {
	return change(func(p *corev1.Pod) {
		for i := 0; i < len(pairs); i += 2 {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
		}
	})
}

func withPreStop(grace int64, command ...string) *corev1.Pod {
	return change(func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	})
}

func withSleep(grace, sleep int64) *corev1.Pod {
	pod := withPreStop(grace)
	pod.Spec.Containers[0].Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: sleep}}
	return pod
}

func TestAdvice(t *testing.T) {
	c := installed(t, minimal())
	always := corev1.ContainerRestartPolicyAlways
	ours := corev1.Container{Name: "locksidecar", Image: "locksidecar:mine"}
	native := ours
	native.RestartPolicy = &always
	const classic, notFirst, short, hook, proxy = "classic sidecar", "not the first init container", "under 10 s", "preStop hook sleeps", "http_proxy is set without"
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want string // in the one warning; "" if there is none
	}{
		{"nothing to say", plainPod(), ""},
		{"classic", change(func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, ours) }), classic},
		{"first", change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{native, {Name: "a"}} }), ""},
		{"not first", change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "a"}, native} }), notFirst},
		{"9 s", change(func(p *corev1.Pod) { nine := int64(9); p.Spec.TerminationGracePeriodSeconds = &nine }), short},
		{"5 s and no hook", change(func(p *corev1.Pod) { five := int64(5); p.Spec.TerminationGracePeriodSeconds = &five }), short},
		{"10 s", change(func(p *corev1.Pod) { ten := int64(10); p.Spec.TerminationGracePeriodSeconds = &ten }), ""},
		{"sleep in time", withSleep(30, 24), ""},
		{"sleep too long", withSleep(30, 25), hook},
		{"sleep of a shell in time", withPreStop(30, "sh", "-c", "sleep 24"), ""},
		{"sleep of a shell too long", withPreStop(30, "sh", "-c", "nginx -s quit; sleep 25"), hook},
		{"sleep as a command too long", withPreStop(60, "/bin/sleep", "55"), hook},
		{"another command", withPreStop(30, "/app", "stop"), ""},
		{"a proxy", withEnv("http_proxy", "http://proxy:3128"), proxy},
		{"a proxy for others", withEnv("HTTP_PROXY", "http://proxy:3128", "NO_PROXY", "localhost,127.0.0.1,.svc"), ""},
		{"a proxy for one of the two names", withEnv("http_proxy", "http://proxy:3128", "no_proxy", "localhost"), proxy},
		{"a proxy for nobody", withEnv("http_proxy", "http://proxy:3128", "no_proxy", "*"), ""},
		{"a proxy that is not set", withEnv("http_proxy", ""), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result := c.create(t, tt.pod)
			if result.denied != nil {
				t.Fatal(result.denied)
			}
			switch {
			case tt.want == "" && len(result.warnings)+len(result.audit) == 0:
			case tt.want != "" && len(result.warnings) == 1 && strings.Contains(result.warnings[0], tt.want) && len(result.audit) == 1:
			default:
				t.Errorf("warnings %q, audit %q; want %q in each", result.warnings, result.audit, tt.want)
			}
		})
	}
}
