// release makes what a release consists of. It needs Go, make and the modules
// of this repository, and neither a container engine nor a registry.
//
//	release image -tag NAME [-o FILE]   the image for this machine, as docker save writes it
//	release dist -o FOLDER              everything
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/locksidecar/locksidecar/release/oci"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say image or dist")
	}
	var b builder
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&b.root, "root", "..", "the repository")
	flags.StringVar(&b.version, "version", "", "version that the program tells")
	flags.StringVar(&b.commit, "commit", "", "commit that the program tells")
	flags.StringVar(&b.authorities, "authorities", "/etc/ssl/certs/ca-certificates.crt", "bundle of certificate authorities for the image")
	tag := flags.String("tag", "locksidecar", "name of the image")
	out := flags.String("o", "", "file or folder to write to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "image":
		return b.image(ctx, *tag, *out)
	case "dist":
		if *out == "" {
			return errors.New("say by -o where to")
		}
		return b.dist(ctx, *out)
	}
	return fmt.Errorf("%q is neither image nor dist", args[0])
}

// builder knows what is built.
type builder struct {
	root, version, commit, authorities string
}

// binary builds the program for linux.
func (b builder) binary(ctx context.Context, architecture, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "make", "--no-print-directory", "build",
		"BINARY="+to, "VERSION="+b.version, "COMMIT="+b.commit)
	build.Dir, build.Stdout, build.Stderr = b.root, os.Stderr, os.Stderr
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+architecture)
	return build.Run()
}

// product is the image around a binary.
func (b builder) product(architecture, binary string) (v1.Image, error) {
	return oci.Product{
		Binary: binary, Architecture: architecture, Authorities: b.authorities,
		Passwd: filepath.Join(b.root, "tools/passwd"), Version: b.version, Commit: b.commit,
	}.Image()
}

// image writes the image for this machine's architecture to the file, or to
// standard output.
func (b builder) image(ctx context.Context, tag, file string) (err error) {
	folder, err := os.MkdirTemp("", "locksidecar-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	binary := filepath.Join(folder, "locksidecar")
	if err := b.binary(ctx, runtime.GOARCH, binary); err != nil {
		return err
	}
	image, err := b.product(runtime.GOARCH, binary)
	if err != nil {
		return err
	}
	if _, err := name.NewTag(tag); err != nil {
		return err
	}
	var out io.Writer = os.Stdout
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	if err := oci.WriteArchive(out, tag, image); err != nil {
		return err
	}
	size, err := oci.SizeOf(image)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d kB, %d kB compressed, %s\n", tag, size.Files/1000, size.Compressed/1000, digest)
	return nil
}
