package oci_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/locksidecar/locksidecar/release/oci"
)

const root = "../.."

// build builds the program once more from source and makes the image of it.
func build(t *testing.T, architecture string) v1.Image {
	t.Helper()
	folder := t.TempDir()
	binary := filepath.Join(folder, "locksidecar")
	command := exec.CommandContext(t.Context(), "make", "build", "BINARY="+binary, "VERSION=v1.2.3", "COMMIT=abc")
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+architecture)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, text)
	}
	authorities := filepath.Join(folder, "authorities.pem")
	// As long as Debian's bundle, and as hard to compress.
	if err := os.WriteFile(authorities, certificates(220_000), 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := oci.Product{
		Binary: binary, Architecture: architecture, Authorities: authorities,
		Passwd: root + "/tools/passwd", Version: "v1.2.3", Commit: "abc",
	}.Image()
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// certificates makes text that looks like base64.
func certificates(n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	out, state := make([]byte, n), uint64(1)
	for i := range out {
		state = state*6364136223846793005 + 1442695040888963407
		out[i] = letters[state>>58]
	}
	return out
}

func TestTheImage(t *testing.T) {
	for _, architecture := range []string{"amd64", "arm64"} {
		t.Run(architecture, func(t *testing.T) {
			image := build(t, architecture)
			size, err := oci.SizeOf(image)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes, %d compressed", size.Files, size.Compressed)
			if size.Files > 15_000_000 {
				t.Errorf("the image has %d bytes, want at most 15 MB", size.Files)
			}
			if size.Compressed > 6_000_000 {
				t.Errorf("the image has %d bytes compressed, want at most 6 MB", size.Compressed)
			}
			file, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if file.OS != "linux" || file.Architecture != architecture {
				t.Errorf("the image is for %s/%s", file.OS, file.Architecture)
			}
			if file.Config.User != "65532:65532" {
				t.Errorf("the image runs as %q", file.Config.User)
			}
			if got := content(t, image); !slices.Equal(got, []string{
				"etc/ drwxr-xr-x 0:0", "etc/passwd -rw-r--r-- 0:0",
				"etc/ssl/ drwxr-xr-x 0:0", "etc/ssl/certs/ drwxr-xr-x 0:0", "etc/ssl/certs/ca-certificates.crt -rw-r--r-- 0:0",
				"locksidecar -rwxr-xr-x 0:0",
			}) {
				t.Errorf("the image holds %q", got)
			}
			digest, err := image.Digest()
			if err != nil {
				t.Fatal(err)
			}
			again, err := build(t, architecture).Digest()
			if err != nil {
				t.Fatal(err)
			}
			if digest != again {
				t.Errorf("two builds have the digests %s and %s", digest, again)
			}
		})
	}
}

// content lists path, mode and owner of all files.
func content(t *testing.T, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, layer := range layers {
		in, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(in); ; {
			header, err := archive.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			owner := "0:0"
			if header.Uid != 0 || header.Gid != 0 {
				owner = "another owner"
			}
			list = append(list, header.Name+" "+header.FileInfo().Mode().String()+" "+owner)
		}
		_ = in.Close() // it was only read
	}
	slices.Sort(list)
	return list
}

// TestTheDockerfileMakesTheSame holds the two ways to the image together: what
// Dockerfile says of it is in the configuration that is made here.
func TestTheDockerfileMakesTheSame(t *testing.T) {
	text, err := os.ReadFile(root + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, found := bytes.Cut(text, []byte("\nFROM scratch\n"))
	if !found {
		t.Fatal("Dockerfile has no stage that begins with FROM scratch")
	}
	stage := string(last)
	binary := filepath.Join(t.TempDir(), "locksidecar")
	if err := os.WriteFile(binary, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := oci.Product{Binary: binary, Architecture: "amd64", Authorities: binary, Passwd: binary, Version: "$VERSION", Commit: "$COMMIT"}.Image()
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, m := range regexp.MustCompile(`(org\.opencontainers\.[a-z.]+)="([^"]*)"`).FindAllStringSubmatch(stage, -1) {
		labels[m[1]] = m[2]
	}
	if len(labels) == 0 || len(labels) != len(file.Config.Labels) {
		t.Errorf("Dockerfile has %d labels, want %d", len(labels), len(file.Config.Labels))
	}
	for name, value := range file.Config.Labels {
		if labels[name] != value {
			t.Errorf("label %s is %q in Dockerfile, want %q", name, labels[name], value)
		}
	}
	for _, line := range []string{
		"USER " + file.Config.User, "EXPOSE 5626", `ENTRYPOINT ["` + file.Config.Entrypoint[0] + `"]`,
	} {
		if !strings.Contains(stage, "\n"+line+"\n") {
			t.Errorf("Dockerfile has no line %s", line)
		}
	}
	var copied []string
	for _, m := range regexp.MustCompile(`(?m)^COPY .* /(\S+)$`).FindAllStringSubmatch(stage, -1) {
		copied = append(copied, m[1])
	}
	slices.Sort(copied)
	var files []string
	for _, line := range content(t, image) {
		if name, _, _ := strings.Cut(line, " "); !strings.HasSuffix(name, "/") {
			files = append(files, name)
		}
	}
	if !slices.Equal(copied, files) {
		t.Errorf("Dockerfile copies %q, want %q", copied, files)
	}
}
