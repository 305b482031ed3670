package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kindconfig "sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cmd"
	kindexec "sigs.k8s.io/kind/pkg/exec"
)

// cluster is the one of this run, made when the first scenario asks for it.
type theirCluster struct {
	once sync.Once
	err  error

	folder   string // of this run, removed at the end
	name     string
	kept     bool
	provider *cluster.Provider
	rest     *rest.Config
	client   *kubernetes.Clientset
	nodes    []nodes.Node
	images   images
}

var theCluster theirCluster

// journals is where every node has the folder into which applications write.
const journals = "/journal"

// getCluster waits until the cluster is there.
func getCluster(t *testing.T) *theirCluster {
	t.Helper()
	c := &theCluster
	c.once.Do(func() { c.err = c.make(context.Background()) })
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c
}

// wantedNodes is how many nodes the cluster gets.
func wantedNodes() int {
	if n, err := strconv.Atoi(os.Getenv("E2E_NODES")); err == nil && n > 0 {
		return n
	}
	if testing.Short() {
		return 1
	}
	return 3
}

// keep says whether the cluster is to be there for the next run.
func keep() bool { return os.Getenv("E2E_KEEP") != "" }

func (c *theirCluster) make(ctx context.Context) (err error) {
	if err := exec.CommandContext(ctx, "docker", "info").Run(); err != nil {
		return fmt.Errorf("no container engine answers (docker info): %w", err)
	}
	if c.folder, err = os.MkdirTemp("", "locksidecar-e2e-"); err != nil {
		return err
	}
	if lacksSysResource() {
		if err := standBeforeDocker(c.folder); err != nil {
			return err
		}
	}
	c.kept = keep()
	c.name = fmt.Sprintf("locksidecar-e2e-%d", wantedNodes())
	if !c.kept {
		c.name += "-" + strconv.FormatInt(time.Now().Unix()%100000, 10)
	}
	engine, err := cluster.DetectNodeProvider()
	if err != nil {
		return err
	}
	c.provider = cluster.NewProvider(engine, cluster.ProviderWithLogger(cmd.NewLogger()))
	there, err := c.provider.List()
	if err != nil {
		return err
	}
	if !slices.Contains(there, c.name) {
		if err := c.create(); err != nil {
			return err
		}
	}
	if err := c.connect(); err != nil {
		return err
	}
	if c.nodes, err = c.provider.ListInternalNodes(c.name); err != nil {
		return err
	}
	c.nodes = internalNodes(c.nodes)
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	measured.Kubernetes = version.GitVersion
	c.images, err = buildImages(ctx, c.folder, c.nodes)
	return err
}

// create makes a cluster with kind's node image, or the one that
// KIND_NODE_IMAGE names.
func (c *theirCluster) create() error {
	mount := kindconfig.Mount{HostPath: c.hostJournals(), ContainerPath: journals}
	if err := os.MkdirAll(mount.HostPath, 0o755); err != nil {
		return err
	}
	config := &kindconfig.Cluster{Name: c.name}
	for i := range wantedNodes() {
		role := kindconfig.WorkerRole
		if i == 0 {
			role = kindconfig.ControlPlaneRole
		}
		config.Nodes = append(config.Nodes, kindconfig.Node{Role: role, ExtraMounts: []kindconfig.Mount{mount}})
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); errors.Is(err, os.ErrNotExist) {
		// The kubelet refuses a machine with version 1 of cgroups unless told
		// otherwise.
		config.KubeadmConfigPatches = []string{"kind: KubeletConfiguration\nfailCgroupV1: false\n"}
	}
	options := []cluster.CreateOption{
		cluster.CreateWithV1Alpha4Config(config),
		cluster.CreateWithKubeconfigPath(filepath.Join(c.folder, "kubeconfig")),
		cluster.CreateWithWaitForReady(3 * time.Minute),
		cluster.CreateWithRetain(c.kept),
		cluster.CreateWithDisplayUsage(false), cluster.CreateWithDisplaySalutation(false),
	}
	if err := chooseSnapshotter(); err != nil {
		return err
	}
	if image := os.Getenv("KIND_NODE_IMAGE"); image != "" {
		options = append(options, cluster.CreateWithNodeImage(image))
	}
	err := c.provider.Create(c.name, options...)
	if failed := kindexec.RunErrorForError(err); failed != nil {
		return fmt.Errorf("%w\n%s", err, failed.Output)
	}
	return err
}

// chooseSnapshotter keeps a node from looking at the file system that it lies
// on. Where the engine keeps images on fuse, a node would do so too, for which
// not every node image has the program; but it keeps them in a volume, which
// is a folder of this machine, and so can do what the kernel can.
func chooseSnapshotter() error {
	const name = "KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER"
	driver, err := exec.Command("docker", "info", "--format", "{{.Driver}}").Output()
	if err != nil || os.Getenv(name) != "" || strings.TrimSpace(string(driver)) != "fuse-overlayfs" {
		return err
	}
	systems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if strings.Contains(string(systems), "\toverlay\n") {
		return os.Setenv(name, "overlayfs")
	}
	return os.Setenv(name, "native")
}

// hostJournals is the folder here that the nodes have as journals.
func (c *theirCluster) hostJournals() string {
	return filepath.Join(os.TempDir(), c.name+"-journals")
}

func (c *theirCluster) connect() error {
	text, err := c.provider.KubeConfig(c.name, false)
	if err != nil {
		return err
	}
	if c.rest, err = clientcmd.RESTConfigFromKubeConfig([]byte(text)); err != nil {
		return err
	}
	c.rest.QPS, c.rest.Burst = 100, 200
	c.client, err = kubernetes.NewForConfig(c.rest)
	return err
}

// end removes what the run has made.
func (c *theirCluster) end() error {
	if c.folder == "" {
		return nil
	}
	var err error
	if c.kept {
		fmt.Fprintf(os.Stderr, "e2e: the cluster %s is kept; remove it with: docker rm -fv $(docker ps -aq --filter label=io.x-k8s.kind.cluster=%s)\n", c.name, c.name)
	} else if c.provider != nil {
		err = errors.Join(c.provider.Delete(c.name, filepath.Join(c.folder, "kubeconfig")), os.RemoveAll(c.hostJournals()))
	}
	return errors.Join(err, os.RemoveAll(c.folder))
}

// node is the one of that name.
func (c *theirCluster) node(name string) (nodes.Node, error) {
	for _, n := range c.nodes {
		if n.String() == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node %q", name)
}

// onNode runs a command in a node and returns what it prints.
func (c *theirCluster) onNode(t *testing.T, name string, command ...string) string {
	t.Helper()
	n, err := c.node(name)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := n.CommandContext(t.Context(), command[0], command[1:]...).SetStdout(&out).SetStderr(&out).Run(); err != nil {
		t.Fatalf("%s: %q: %v\n%s", name, command, err, out.String())
	}
	return out.String()
}
