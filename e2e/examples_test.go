package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

const examples = "../examples/kubernetes"

// TestExamples applies the manifests as they are, in a namespace that has no
// other. The images that they name are made here and loaded under those names.
func TestExamples(t *testing.T) {
	long(t)
	s := begin(t, "examples")
	s.loadExampleImages()
	s.apply("redis.yaml")
	s.eventually(time.Minute, "Redis is ready", func() (bool, string) {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.ctx(), "redis", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 1, asJSON(d.Status)
	})
	for _, tt := range []struct{ name, file, app string }{
		{"deployment", "deployment.yaml", "leader"},
		{"classic deployment", "classic-deployment.yaml", "leader-classic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			s.apply(tt.file)
			defer s.remove(tt.file)
			const sign = "leads with fencing token"
			leader := s.says(tt.app, sign, 1)[0]
			time.Sleep(2 * time.Second) // for a second one, were there no lock
			if leaders := s.says(tt.app, sign, 1); len(leaders) != 1 {
				t.Errorf("%q lead at once", leaders)
			}
			s.deletePod(leader, nil)
			s.eventually(time.Minute, "another one leads", func() (bool, string) {
				leaders := s.says(tt.app, sign, 1)
				return len(leaders) > 0 && leaders[len(leaders)-1] != leader, strings.Join(leaders, " ")
			})
		})
	}
	t.Run("statefulset", func(t *testing.T) {
		s := s.in(t)
		s.apply("statefulset.yaml")
		defer s.remove("statefulset.yaml")
		s.says("shard", "serves shard-", 2)
	})
	for _, tt := range []struct {
		name, file, job, sign string
		times                 int
	}{
		{"job", "job.yaml", "migrate", "works alone", 3},
		{"classic job", "classic-job.yaml", "migrate-classic", "works alone", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			s.apply(tt.file)
			defer s.remove(tt.file)
			s.completed(90*time.Second, func() (*batchv1.Job, error) {
				return s.client.BatchV1().Jobs(s.namespace).Get(s.ctx(), tt.job, metav1.GetOptions{})
			})
			s.says(tt.job, tt.sign, tt.times)
		})
	}
	t.Run("cronjob", func(t *testing.T) {
		s := s.in(t)
		s.apply("cronjob.yaml")
		defer s.remove("cronjob.yaml")
		cron, err := s.client.BatchV1().CronJobs(s.namespace).Get(s.ctx(), "nightly-report", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// As kubectl create job --from does. The second finds that the first has
		// done it.
		for _, name := range []string{"report-1", "report-2"} {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cron.Spec.JobTemplate.Spec}
			if _, err := s.client.BatchV1().Jobs(s.namespace).Create(s.ctx(), job, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"report-1", "report-2"} {
			s.completed(time.Minute, func() (*batchv1.Job, error) {
				return s.client.BatchV1().Jobs(s.namespace).Get(s.ctx(), name, metav1.GetOptions{})
			})
		}
		if reporters := s.says("nightly-report", "reports with fencing token", 1); len(reporters) != 1 {
			t.Errorf("%q have reported, want one of two", reporters)
		}
	})
}

// in is the same scenario in a test within its test.
func (s *scenario) in(t *testing.T) *scenario {
	copied := *s
	copied.T = t
	return &copied
}

// says waits until at least so many pods of the app have printed the words, and
// returns all that have.
func (s *scenario) says(app, words string, atLeast int) []string {
	s.Helper()
	var found []string
	s.eventually(time.Minute, app+" prints: "+words, func() (bool, string) {
		found = nil
		pods, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return false, err.Error()
		}
		var seen strings.Builder
		for _, pod := range pods.Items {
			log, err := s.client.CoreV1().Pods(s.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "app"}).DoRaw(s.ctx())
			seen.WriteString(pod.Name + ": " + string(log))
			if err == nil && bytes.Contains(log, []byte(words)) {
				found = append(found, pod.Name)
			}
		}
		return len(found) >= atLeast, seen.String()
	})
	return found
}

// anImage is an image that a manifest names.
var anImage = regexp.MustCompile(`(?m)^\s*-?\s*image: (\S+)`)

// loadExampleImages gives the nodes our images under the names of the manifests.
func (s *scenario) loadExampleImages() {
	s.Helper()
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) == 0 {
		s.Fatalf("no manifests: %v", err)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range anImage.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	for name := range names {
		repository, _, _ := strings.Cut(name, ":")
		ours := map[string]string{"locksidecar": s.images.sidecar, "curl": s.images.tools, "redis": s.images.redis}[repository[strings.LastIndex(repository, "/")+1:]]
		if ours == "" {
			s.Fatalf("there is no image here that can stand for %s", name)
		}
		// The full name, as the kubelet asks for it.
		switch strings.Count(name, "/") {
		case 0:
			name = "docker.io/library/" + name
		case 1:
			name = "docker.io/" + name
		}
		for _, node := range s.nodes {
			s.onNode(s.T, node.String(), "ctr", "--namespace=k8s.io", "images", "tag", "--force", ours, name)
		}
	}
}

// manifests reads the objects of an example.
func (s *scenario) manifests(file string) []*unstructured.Unstructured {
	s.Helper()
	f, err := os.Open(filepath.Join(examples, file))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			s.Fatal(err)
		}
		objects = append(objects, object)
	}
}

func (s *scenario) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	s.Helper()
	client, err := dynamic.NewForConfig(s.rest)
	if err != nil {
		s.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		s.Fatal(err)
	}
	return client.Resource(mapping.Resource).Namespace(s.namespace)
}

func (s *scenario) apply(file string) {
	s.Helper()
	for _, object := range s.manifests(file) {
		if _, err := s.resource(object).Create(s.ctx(), object, metav1.CreateOptions{}); err != nil {
			s.Fatalf("%s: %v", file, err)
		}
	}
}

func (s *scenario) remove(file string) {
	s.Helper()
	background := metav1.DeletePropagationBackground
	for _, object := range s.manifests(file) {
		err := s.resource(object).Delete(context.Background(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil {
			s.Error(err)
		}
	}
}
