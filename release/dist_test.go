package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestDist(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "dist")
	authorities := filepath.Join(t.TempDir(), "authorities.pem")
	if err := os.WriteFile(authorities, []byte("certificates\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := builder{root: "..", version: "v1.2.3", commit: "abc", authorities: authorities}
	if err := b.dist(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	t.Run("checksums", func(t *testing.T) { checkSums(t, folder) })
	t.Run("image", func(t *testing.T) { checkLayout(t, filepath.Join(folder, "locksidecar-image-v1.2.3.tar.gz")) })
	for _, architecture := range architectures {
		t.Run("sbom "+architecture, func(t *testing.T) {
			checkSBOM(t, filepath.Join(folder, "locksidecar-linux-"+architecture+".cdx.json"))
		})
	}
}

// checkSums checks every file but the list itself, and that none is missing in
// it.
func checkSums(t *testing.T, folder string) {
	list, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, entry := range entries {
		if entry.Name() == "SHA256SUMS" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	if len(entries) < 6 || string(list) != want.String() {
		t.Errorf("SHA256SUMS of %d files:\n%swant:\n%s", len(entries), list, want.String())
	}
}

// checkLayout reads the archive as a registry's client would.
func checkLayout(t *testing.T, file string) {
	index, err := layout.ImageIndexFromPath(unpack(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Fatalf("the layout has %+v, want one index that is named v1.2.3", top.Manifests)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		image, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		platforms = append(platforms, platform(t, image))
		if want := platform(t, image); m.Platform.String() != want {
			t.Errorf("the index says %s of an image for %s", m.Platform, want)
		}
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("there are images for %q", platforms)
	}
}

func platform(t *testing.T, image v1.Image) string {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file.OS + "/" + file.Architecture
}

func unpack(t *testing.T, file string) string {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // it was only read
	packed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// checkSBOM finds in it what the binary is known to be made of.
func checkSBOM(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.Format != "CycloneDX" {
		t.Errorf("its form is %q", bom.Format)
	}
	for _, module := range []string{"std", "github.com/redis/go-redis/v9", "github.com/go-chi/chi/v5"} {
		if !slices.ContainsFunc(bom.Components, func(c struct{ Name, Version, PURL string }) bool {
			return c.Name == module && c.Version != "" && strings.HasPrefix(c.PURL, "pkg:golang/")
		}) {
			t.Errorf("it does not name %s", module)
		}
	}
}

func TestNoReleaseOfATreeThatIsNotClean(t *testing.T) {
	folder := t.TempDir()
	for _, version := range []string{"", "v1.2.3-dirty"} {
		if err := (builder{root: "..", version: version}).dist(context.Background(), folder); err == nil {
			t.Errorf("version %q was released", version)
		}
	}
	if _, err := os.Stat(folder); err != nil {
		t.Errorf("the folder was touched: %v", err)
	}
}
