package charttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const manifests = "../../examples/kubernetes"

// manifest reads one of the plain manifests.
func manifest(t *testing.T, name string) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(manifests, name))
	if err != nil {
		t.Fatal(err)
	}
	objects, others := decode(t, split(data))
	if len(others) > 0 || len(objects) == 0 {
		t.Fatalf("%d objects, and others %v", len(objects), others)
	}
	return objects
}

// sidecarFor is the container that the library chart makes for the Redis of
// the examples.
func sidecarFor(t *testing.T, form string) corev1.Container {
	t.Helper()
	v := values{}.at("locksidecar.redis.addresses", []any{"redis:6379"}).at("locksidecar.form", form)
	files, err := helm4("testdata/app", v, kube)
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := decode(t, documents(files))
	spec := objects[0].(*corev1.Pod).Spec
	if form == "classic" {
		return spec.Containers[1]
	}
	return spec.InitContainers[0]
}

func TestThePlainManifests(t *testing.T) {
	c := installed(t, minimal())
	for name, form := range map[string]string{
		"deployment.yaml": "native", "cronjob.yaml": "native", "job.yaml": "native", "statefulset.yaml": "native",
		"classic-deployment.yaml": "classic", "classic-job.yaml": "classic",
	} {
		t.Run(name, func(t *testing.T) {
			pods := 0
			for _, object := range manifest(t, name) {
				pod := podOf(object)
				if pod == nil {
					continue
				}
				pods++
				mustBeRestricted(t, pod)
				list := pod.Spec.InitContainers
				if form == "classic" {
					list = pod.Spec.Containers
				}
				if diff := cmp.Diff(sidecarFor(t, form), list[0]); diff != "" {
					t.Errorf("the sidecar is not the library chart's (-library +manifest):\n%s", diff)
				}

				// Where the chart is installed and the label set too.
				pod.Labels["locksidecar.io/inject"] = "true"
				result := c.create(t, pod)
				if result.denied != nil || !cmp.Equal(result.pod.Spec, pod.Spec) {
					t.Errorf("%v; changed: %s", result.denied, cmp.Diff(pod.Spec, result.pod.Spec))
				}
				if form == "native" && len(result.warnings) > 0 || form == "classic" && (len(result.warnings) != 1 || !strings.Contains(result.warnings[0], "classic")) {
					t.Errorf("warnings %q", result.warnings)
				}
			}
			if pods != 1 {
				t.Errorf("%d pods", pods)
			}
		})
	}
}

func TestTheRedisToTryThingsOutWith(t *testing.T) {
	var pod *corev1.Pod
	var service *corev1.Service
	for _, object := range manifest(t, "redis.yaml") {
		if s, ok := object.(*corev1.Service); ok {
			service = s
		} else {
			pod = podOf(object)
		}
	}
	mustBeRestricted(t, pod)
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the service selects %v", service.Spec.Selector)
	}
	// What the other manifests call it.
	if address := service.Name + ":6379"; service.Spec.Ports[0].Port != 6379 || env(sidecarFor(t, "native"))["REDIS_ADDRS"] != address {
		t.Errorf("it is at %s, port %d", address, service.Spec.Ports[0].Port)
	}
}

// TestEveryManifestIsKnown so that none is without its test.
func TestEveryManifestIsKnown(t *testing.T) {
	paths, err := filepath.Glob(manifests + "/*.yaml")
	if err != nil || len(paths) != 7 {
		t.Errorf("%d manifests, %v: the tests above know 7", len(paths), err)
	}
}
