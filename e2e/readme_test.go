package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aBlock is a block of code in the README.
var aBlock = regexp.MustCompile("(?s)\n```\n(.*?)```\n")

// TestTheReadme pastes what the README says of Kubernetes into a shell. The
// images that it does not build itself are ours under other names.
func TestTheReadme(t *testing.T) {
	long(t)
	s := begin(t, "readme")
	s.loadExampleImages()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## On Kubernetes\n")
	if !found {
		t.Fatal("the README has no part On Kubernetes")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := aBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) < 2 {
		t.Fatalf("the part has %d blocks, want those to install and to try", len(blocks))
	}
	bin := s.buildTools(map[string]string{"helm": "helm.sh/helm/v4/cmd/helm", "kind": "sigs.k8s.io/kind", "kubectl": "./kubectl"})
	shell := func(ctx context.Context, script string) (string, error) {
		command := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", script)
		command.Dir = ".."
		command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(bin, "kubeconfig"), "KIND_CLUSTER_NAME="+s.name,
			"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := command.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if out, err := shell(ctx, "helm uninstall locksidecar --namespace locksidecar --wait"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		_ = s.client.CoreV1().Pods("default").Delete(ctx, "app", metav1.DeleteOptions{GracePeriodSeconds: to(int64(0))})
		for _, space := range []string{"locksidecar", "redis"} {
			_ = s.client.CoreV1().Namespaces().Delete(ctx, space, metav1.DeleteOptions{})
		}
	})
	var last string
	for _, block := range blocks {
		out, err := shell(t.Context(), block[1])
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		last = out
	}
	if !strings.Contains(last, `"fencing_token":`) {
		t.Errorf("the last command has not taken the lock:\n%s", last)
	}
}

// buildTools builds programs of the modules here into a folder, beside the
// cluster's kubeconfig.
func (s *scenario) buildTools(packages map[string]string) string {
	s.Helper()
	folder := s.TempDir()
	for name, pkg := range packages {
		build := exec.CommandContext(s.ctx(), "go", "build", "-o", filepath.Join(folder, name), pkg)
		if text, err := build.CombinedOutput(); err != nil {
			s.Fatalf("go build %s: %v\n%s", pkg, err, text)
		}
	}
	config, err := s.provider.KubeConfig(s.name, false)
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(config), 0o600); err != nil {
		s.Fatal(err)
	}
	return folder
}
