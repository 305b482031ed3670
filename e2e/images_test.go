package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"

	"github.com/locksidecar/locksidecar/release/oci"
)

// images are the references under which the nodes have what pods run. A tag is
// made of the content, so that a node never has another image than the one
// that was built last.
type images struct {
	sidecar string // the product
	worker  string // e2e/worker
	tools   string // sh, curl, date, sleep
	redis   string // redis-server, redis-cli, redis-sentinel, sh
}

// programs of this machine that go into the images with the libraries that
// they load, and the Debian packages that have them.
var (
	toolPrograms  = map[string]string{"dash": "dash", "curl": "curl", "date": "coreutils", "sleep": "coreutils"}
	redisPrograms = map[string]string{"redis-server": "redis-server", "redis-cli": "redis-tools", "dash": "dash"}
)

// buildImages builds all of them and loads them into the nodes.
func buildImages(ctx context.Context, folder string, to []nodes.Node) (images, error) {
	var out images
	product, err := productImage(ctx, folder)
	if err != nil {
		return out, err
	}
	worker, err := workerImage(ctx, folder)
	if err != nil {
		return out, err
	}
	tools, err := programsImage(ctx, "/bin/sh", toolPrograms)
	if err != nil {
		return out, err
	}
	redis, err := programsImage(ctx, "/bin/redis-server", redisPrograms)
	if err != nil {
		return out, err
	}
	for _, i := range []struct {
		name  string
		image v1.Image
		ref   *string
	}{
		{"locksidecar", product, &out.sidecar},
		{"worker", worker, &out.worker},
		{"tools", tools, &out.tools},
		{"redis", redis, &out.redis},
	} {
		if *i.ref, err = load(i.name, i.image, to); err != nil {
			return out, err
		}
	}
	return out, nil
}

func productImage(ctx context.Context, folder string) (v1.Image, error) {
	binary := filepath.Join(folder, "locksidecar")
	build := exec.CommandContext(ctx, "make", "--no-print-directory", "build", "BINARY="+binary)
	build.Dir = ".."
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make build: %w\n%s", err, text)
	}
	return oci.Product{
		Binary: binary, Architecture: runtime.GOARCH, Version: "e2e",
		Authorities: "/etc/ssl/certs/ca-certificates.crt", Passwd: "../tools/passwd",
	}.Image()
}

func workerImage(ctx context.Context, folder string) (v1.Image, error) {
	binary := filepath.Join(folder, "worker")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOFLAGS=-buildvcs=false")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	return oci.Image(runtime.GOARCH, v1.Config{Entrypoint: []string{"/worker"}, User: "65532:65532"},
		oci.File{Path: "/worker", From: binary, Mode: 0o755})
}

// aLibrary is a path in what ldd prints.
var aLibrary = regexp.MustCompile(`/[^ )]+`)

// programsImage copies programs of this machine into /bin, and the shared
// libraries that they load to where they are here.
func programsImage(ctx context.Context, entrypoint string, programs map[string]string) (v1.Image, error) {
	files := map[string]oci.File{"/tmp": {Path: "/tmp", Mode: os.ModeDir | os.ModeSticky | 0o777}}
	for program, pkg := range programs {
		need := exec.CommandContext(ctx, "../tools/need", program, pkg)
		if text, err := need.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", program, err, text)
		}
		from, err := exec.LookPath(program)
		if err != nil {
			return nil, err
		}
		to := "/bin/" + program
		if program == "dash" {
			to = "/bin/sh"
		}
		files[to] = oci.File{Path: to, From: from, Mode: 0o755}
		libraries, err := exec.CommandContext(ctx, "ldd", from).Output()
		if err != nil {
			continue // a static program, which loads none
		}
		for _, library := range aLibrary.FindAllString(string(libraries), -1) {
			files[library] = oci.File{Path: library, From: library, Mode: 0o755}
		}
	}
	var list []oci.File
	for _, f := range files {
		list = append(list, f)
	}
	return oci.Image(runtime.GOARCH, v1.Config{
		Entrypoint: []string{entrypoint}, User: "65532:65532", Env: []string{"PATH=/bin"},
	}, list...)
}

// load gives the image to the nodes that have it not.
func load(name string, image v1.Image, to []nodes.Node) (string, error) {
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	ref := "e2e.local/" + name + ":" + digest.Hex[:16]
	var archive bytes.Buffer
	if err := oci.WriteArchive(&archive, ref, image); err != nil {
		return "", err
	}
	for _, node := range to {
		if id, err := nodeutils.ImageID(node, ref); err == nil && id != "" {
			continue
		}
		if err := nodeutils.LoadImageArchive(node, bytes.NewReader(archive.Bytes())); err != nil {
			return "", fmt.Errorf("loading %s into %s: %w", ref, node, err)
		}
	}
	return ref, nil
}

// internalNodes are those that run pods, in a steady order.
func internalNodes(all []nodes.Node) []nodes.Node {
	slices.SortFunc(all, func(a, b nodes.Node) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return all
}
