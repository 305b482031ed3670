// Package oci makes container images of files, without a container engine and
// without a base image. The same files give the same digest.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one file of an image, owned by root. Folders above it need not be
// named.
type File struct {
	Path string      // absolute
	From string      // the file here that it is a copy of; symbolic links are followed
	Mode os.FileMode // permissions; os.ModeDir|os.ModeSticky|0o777 makes a folder such as /tmp, and From is empty
}

// Image makes an image of one layer for linux on the architecture.
func Image(architecture string, config v1.Config, files ...File) (v1.Image, error) {
	content, err := layer(files)
	if err != nil {
		return nil, err
	}
	compressed, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, compressed)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = architecture, "linux", config
	return mutate.ConfigFile(image, file)
}

// layer writes the files as a tar archive whose bytes depend on their paths,
// modes and contents alone.
func layer(files []File) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	folders := map[string]bool{".": true}
	var folder func(name string, mode int64) error
	folder = func(name string, mode int64) error {
		if folders[name] {
			return nil
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		folders[name] = true
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
	}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("oci: %q is no absolute path", f.Path)
		}
		name := f.Path[1:]
		mode := int64(f.Mode.Perm())
		if f.Mode.IsDir() {
			if f.Mode&os.ModeSticky != 0 {
				mode |= 0o1000
			}
			if err := folder(name, mode); err != nil {
				return nil, err
			}
			continue
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(f.From)
		if err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// WriteArchive writes the image as docker save does, for docker load, ctr
// images import and kind. The reference has a tag.
func WriteArchive(w io.Writer, reference string, image v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	return tarball.Write(tag, image, w)
}

// Size is how much an image takes, in bytes.
type Size struct {
	Files      int64 // unpacked
	Compressed int64 // as it is pulled
}

// SizeOf measures the image.
func SizeOf(image v1.Image) (Size, error) {
	var size Size
	layers, err := image.Layers()
	if err != nil {
		return size, err
	}
	for _, l := range layers {
		compressed, err := l.Size()
		if err != nil {
			return size, err
		}
		size.Compressed += compressed
		content, err := l.Uncompressed()
		if err != nil {
			return size, err
		}
		n, err := io.Copy(io.Discard, content)
		_ = content.Close() // it was only read
		if err != nil {
			return size, err
		}
		size.Files += n
	}
	return size, nil
}
