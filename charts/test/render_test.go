package charttest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestBothHelmsRenderTheSame(t *testing.T) {
	for name, v := range ciValues(t) {
		four, err := helm4(chartDir, v, kube)
		if err != nil {
			t.Errorf("%s: Helm 4: %v", name, err)
			continue
		}
		three, err := helm3(chartDir, v, kube)
		if err != nil {
			t.Errorf("%s: Helm 3: %v", name, err)
			continue
		}
		if diff := cmp.Diff(four, three); diff != "" {
			t.Errorf("%s (-Helm 4 +Helm 3):\n%s", name, diff)
		}
	}
}

func TestEveryObjectIsOfItsKind(t *testing.T) {
	foreign := []string{"PodMonitor", "PrometheusRule"} // kinds of Prometheus' operator; see metrics_test.go
	for name, v := range ciValues(t) {
		objects, others := decode(t, documents(render(t, v)))
		for kind := range others {
			if !strings.Contains(strings.Join(foreign, " "), kind) {
				t.Errorf("%s: a %s, which Kubernetes does not know", name, kind)
			}
		}
		if len(objects) == 0 {
			t.Errorf("%s: nothing is rendered", name)
		}
	}
}

// TestNothingRuns: no process, no certificate, no right.
func TestNothingRuns(t *testing.T) {
	objects, others := decode(t, documents(render(t, minimal())))
	kinds := map[string]int{}
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && strings.Contains(pod.Annotations["helm.sh/hook"], "test") {
			continue
		}
		kinds[object.GetObjectKind().GroupVersionKind().Kind]++
	}
	want := map[string]int{"MutatingAdmissionPolicy": 1, "MutatingAdmissionPolicyBinding": 1, "ValidatingAdmissionPolicy": 2, "ValidatingAdmissionPolicyBinding": 2}
	if diff := cmp.Diff(want, kinds); diff != "" || len(others) > 0 {
		t.Errorf("others: %v; (-want +got):\n%s", others, diff)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    values
		kube string
		want string
	}{
		{"no addresses", values{}, kube, "redis.addresses is required: where Redis is"},
		{"an unknown key", minimal().at("redis.adresses", "x"), kube, "adresses"},
		{"an unknown key at the top", minimal().at("injektor", true), kube, "injektor"},
		{"an unknown key deep inside", minimal().at("probes.startup.path", "/"), kube, "path"},
		{"a password in an address", minimal().at("redis.addresses", []any{"redis://:secret@redis:6379"}), kube, "addresses"},
		{"a bare number as a duration", minimal().at("locks.ttl", "30"), kube, "ttl"},
		{"a prefix with a brace", minimal().at("locks.keyPrefix", "a{b"), kube, "keyPrefix"},
		{"two addresses of one server", minimal().at("redis.addresses", []any{"a:1", "b:1"}), kube, "redis.mode single does not take"},
		{"Sentinels without a master", minimal().at("redis.mode", "sentinel"), kube, "redis.sentinel.master is required"},
		{"two servers for a majority", minimal().at("redis.mode", "redlock").at("redis.addresses", []any{"a:1", "b:1"}), kube, "odd number"},
		{"a database in a cluster", minimal().at("redis.mode", "cluster").at("redis.db", 1), kube, "redis.db is not for"},
		{"a user without a password", minimal().at("redis.usernameKey", "user").at("redis.passwordKey", ""), kube, "redis.usernameKey needs"},
		{"a Sentinels' user without a password", minimal().at("redis.mode", "sentinel").at("redis.sentinel.master", "m").at("redis.sentinel.usernameKey", "user"), kube, "redis.sentinel.usernameKey needs"},
		{"seventeen servers for a majority", minimal().at("redis.mode", "redlock").at("redis.addresses", seventeen()), kube, "from 3 to 15"},
		{"too short a lease", minimal().at("locks.ttl", "999ms"), kube, "locks.ttl is from 1s to 24h"},
		{"too long a lease", minimal().at("locks.ttl", "24h1ms"), kube, "locks.ttl is from 1s to 24h"},
		{"a lease beyond the setting", minimal().at("locks.ttl", "30s").at("extraEnv.LOCKSIDECAR_MAX_TTL", "20s"), kube, "locks.ttl is from 1s to 20s"},
		{"a lease beyond the guard", minimal().at("locks.ttl", "2m").at("redis.mode", "redlock").at("redis.addresses", []any{"a:1", "b:1", "c:1"}), kube, "locks.ttl is from 1s to 60s"},
		{"a hold shorter than the lease", minimal().at("locks.maxHold", "29s"), kube, "locks.maxHold is at least locks.ttl"},
		{"one port for both doors", minimal().at("admin.port", 5625), kube, "are two ports"},
		{"half a client certificate", minimal().at("redis.tls.certKey", "tls.crt"), kube, "need each other"},
		{"a long grace where SIGTERM comes late", minimal().at("termination.grace", "20s"), kube, "termination.grace"},
		{"a warning and a denial at once", minimal().at("guard.advice", []any{"Warn", "Deny"}), kube, "advice"},
		{"Kubernetes 1.33", minimal(), "v1.33.4", "injector.enabled: Kubernetes v1.33.4 has no MutatingAdmissionPolicy"},
		{"Kubernetes 1.35 without a word", minimal(), "v1.35.1-gke.100", "set injector.apiVersion=v1beta1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for engine, helm := range map[string]func(string, values, string) (map[string]string, error){"Helm 4": helm4, "Helm 3": helm3} {
				if _, err := helm(chartDir, tt.v, tt.kube); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want one with %q", engine, err, tt.want)
				}
			}
		})
	}
}

func seventeen() []any {
	var all []any
	for i := range 17 {
		all = append(all, fmt.Sprintf("r%d:1", i))
	}
	return all
}

func TestOlderKubernetes(t *testing.T) {
	files, err := helm4(chartDir, minimal().at("injector.apiVersion", "v1beta1"), "v1.35.1-gke.100")
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := decode(t, documents(files)) // as the very kinds of that version
	if len(objects) < 6 {
		t.Errorf("%d objects", len(objects))
	}
	if _, err := helm4(chartDir, minimal().at("injector.enabled", false), "v1.30.0"); err != nil {
		t.Errorf("1.30 without the injector: %v", err)
	}
}

func TestNotesNameTheNextStep(t *testing.T) {
	plain := render(t, minimal())["locksidecar/templates/NOTES.txt"]
	for _, want := range []string{"locksidecar.io/inject", "curl", "helm test locksidecar"} {
		if !strings.Contains(plain, want) {
			t.Errorf("the notes do not say %q:\n%s", want, plain)
		}
	}
	secret := render(t, minimal().at("redis.existingSecret", "redis-login"))["locksidecar/templates/NOTES.txt"]
	if !strings.Contains(secret, "redis-login") || !strings.Contains(secret, "every namespace") || strings.Contains(plain, "every namespace") {
		t.Errorf("of the Secret the notes say:\n%s\nand without one:\n%s", secret, plain)
	}
}

// TestEverySettingExists compares the names of the environment with the page
// that is generated from the program.
func TestEverySettingExists(t *testing.T) {
	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, v := range ciValues(t) {
		for _, file := range render(t, v) {
			for _, name := range regexp.MustCompile(`"?LOCKSIDECAR_[A-Z_]+`).FindAllString(file, -1) {
				seen[strings.Trim(name, `"`)] = true
			}
		}
	}
	delete(seen, "LOCKSIDECAR_URL") // the application's
	for name := range seen {
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("%s is no setting of the program", name)
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d settings were seen: %v", len(seen), seen)
	}
}

// TestTheDefaultsOfBothChartsAreEqual, as those of the library are written a
// second time.
func TestTheDefaultsOfBothChartsAreEqual(t *testing.T) {
	ours, library := readValues(t, chartDir+"/values.yaml"), readValues(t, "../locksidecar-lib/values.yaml")
	delete(library, "form")
	delete(library, "bin")
	for key, value := range library {
		if diff := cmp.Diff(ours[key], value); diff != "" {
			t.Errorf("%s (-locksidecar +locksidecar-lib):\n%s", key, diff)
		}
	}
	schema := func(path string) map[string]any {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := yaml.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		return s["properties"].(map[string]any)
	}
	oursSchema, librarySchema := schema(chartDir+"/values.schema.json"), schema("../locksidecar-lib/values.schema.json")
	for key := range library {
		if diff := cmp.Diff(oursSchema[key], librarySchema[key]); diff != "" || librarySchema[key] == nil {
			t.Errorf("schema of %s (-locksidecar +locksidecar-lib):\n%s", key, diff)
		}
	}
}
