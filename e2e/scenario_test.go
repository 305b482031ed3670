package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// scenario is one test with a namespace, a key prefix and a journal of its own.
type scenario struct {
	*testing.T
	*theirCluster
	namespace string
	folder    string // of the journal, here
	redis     string // address of the Redis that the sidecars use
}

// ctx ends with the test.
func (s *scenario) ctx() context.Context { return s.T.Context() }

// begin makes the namespace. At the end of the test it is removed, and if the
// test has failed what there was to see is kept as artifacts.
func begin(t *testing.T, name string) *scenario {
	t.Helper()
	c := getCluster(t)
	s := &scenario{T: t, theirCluster: c, namespace: name + "-" + strings.ToLower(rand.Text()[:5])}
	s.folder = filepath.Join(c.hostJournals(), s.namespace)
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.folder, 0o777); err != nil { // pods run as another user
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(s.ctx(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			s.keepArtifacts(ctx)
		}
		now := int64(0)
		_ = c.client.CoreV1().Pods(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		_ = c.client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})
	})
	if err := c.awaitAccount(s.ctx(), s.namespace); err != nil {
		t.Fatal(err)
	}
	s.redis = sharedRedis(t)
	return s
}

// prefix is what all keys of the scenario begin with.
func (s *scenario) prefix() string { return s.namespace + ":" }

// events reads the journal.
func (s *scenario) events() []journal.Event {
	s.Helper()
	events, err := journal.ReadDir(s.folder)
	if err != nil {
		s.Fatal(err)
	}
	return events
}

// await waits until the journal has an event that is wanted, and returns the
// first such.
func (s *scenario) await(within time.Duration, what string, wanted func(journal.Event) bool) journal.Event {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		for _, e := range s.events() {
			if wanted(e) {
				return e
			}
		}
		if time.Now().After(end) {
			s.Fatalf("not within %s: %s; the journal:\n%s", within, what, s.transcript())
		}
	}
}

// transcript is the journal without most of the beats.
func (s *scenario) transcript() string {
	var out strings.Builder
	events, _ := journal.ReadDir(s.folder)
	for i, e := range events {
		if e.Kind != journal.Beat || i+1 == len(events) || events[i+1].Kind != journal.Beat {
			fmt.Fprintf(&out, "%s %s %s %d %s\n", e.At.UTC().Format("15:04:05.000"), e.Kind, e.Key, e.Fence, e.Worker)
		}
	}
	return out.String()
}

// nobodyOverlaps fails the test if the journal shows two holders at once or
// fencing tokens that do not rise.
func (s *scenario) nobodyOverlaps() {
	s.Helper()
	wrong := journal.Check(s.events())
	for _, w := range wrong {
		s.Error(w)
	}
	if len(wrong) > 0 {
		s.Logf("the journal:\n%s", s.transcript())
	}
}

// of says whether the worker is a process of the pod.
func of(e journal.Event, pod string) bool { return strings.HasPrefix(e.Worker, pod+".") }

// is makes a condition for await: an event of the kind in the pod, no earlier
// than after.
func is(kind, pod string, after time.Time) func(journal.Event) bool {
	return func(e journal.Event) bool { return e.Kind == kind && of(e, pod) && !e.At.Before(after) }
}

// eventually waits until the condition holds; it says why it does not yet.
func (s *scenario) eventually(within time.Duration, what string, holds func() (bool, string)) {
	s.Helper()
	var why string
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var ok bool
		if ok, why = holds(); ok {
			return
		}
	}
	s.Fatalf("not within %s: %s: %s", within, what, why)
}

// awaitAccount returns once pods may be created in a new namespace: they are refused
// until the account is there that they run under.
func (c *theirCluster) awaitAccount(ctx context.Context, namespace string) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err = c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("namespace %s has no service account: %w", namespace, err)
}

// execute runs a command in a container.
func (c *theirCluster) execute(ctx context.Context, namespace, pod, container string, command ...string) (string, error) {
	request := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.rest, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", command, err, errs.String())
	}
	return out.String(), err
}

// exists says whether the error says that the object is there already.
func exists(err error) bool { return apierrors.IsAlreadyExists(err) }
