package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// architectures are those that are released.
var architectures = []string{"amd64", "arm64"}

// dist writes everything into the folder, which is made anew.
func (b builder) dist(ctx context.Context, folder string) error {
	if strings.HasSuffix(b.version, "-dirty") || b.version == "" {
		return fmt.Errorf("version %q: a release is made of a clean tree", b.version)
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var images []mutate.IndexAddendum
	for _, architecture := range architectures {
		binary := filepath.Join(folder, "locksidecar-linux-"+architecture)
		if err := b.binary(ctx, architecture, binary); err != nil {
			return err
		}
		image, err := b.product(architecture, binary)
		if err != nil {
			return err
		}
		images = append(images, mutate.IndexAddendum{Add: mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
		if err := b.sbom(ctx, binary, binary+".cdx.json"); err != nil {
			return err
		}
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)
	if err := writeLayout(filepath.Join(folder, "locksidecar-image-"+b.version+".tar.gz"), b.version, index); err != nil {
		return err
	}
	if err := b.charts(folder); err != nil {
		return err
	}
	return checksums(folder)
}

// sbom writes what the binary is made of in the form of CycloneDX.
func (b builder) sbom(ctx context.Context, binary, to string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	to, err = filepath.Abs(to)
	if err != nil {
		return err
	}
	// Without -noserial and with a time, no two would be the same.
	tool := exec.CommandContext(ctx, "go", "tool", "cyclonedx-gomod", "bin",
		"-json", "-std", "-noserial", "-notimestamp", "-version", b.version, "-output", to, binary)
	tool.Dir, tool.Stderr = filepath.Join(b.root, "release"), os.Stderr
	return tool.Run()
}

// writeLayout packs the index as an OCI image layout, in which it is the one
// named by the version.
func writeLayout(file, version string, index v1.ImageIndex) (err error) {
	folder, err := os.MkdirTemp("", "locksidecar-layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	where, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})
	if err := where.AppendIndex(index, name); err != nil {
		return err
	}
	return pack(file, folder)
}

// pack writes the folder as a compressed archive that has the same bytes for
// the same files.
func pack(file, folder string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	// WalkDir goes in the order of names.
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(inside), Mode: 0o644, Size: int64(len(content))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	return errors.Join(err, archive.Close(), compressed.Close(), out.Close())
}

// checksums writes SHA256SUMS of all files, for sha256sum --check.
func checksums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		f, err := os.Open(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		_ = f.Close() // it was only read
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", hash.Sum(nil), entry.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
