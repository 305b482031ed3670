package oci

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Product says what the image of locksidecar is made of. Dockerfile makes the
// same from source; a test holds the two together.
type Product struct {
	Binary       string // built for linux on Architecture
	Architecture string // in Go's words: amd64, arm64
	Authorities  string // PEM bundle of certificate authorities
	Passwd       string // tools/passwd
	Version      string
	Commit       string
}

// Image makes the image.
func (p Product) Image() (v1.Image, error) {
	config := v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/locksidecar"},
		ExposedPorts: map[string]struct{}{"5626/tcp": {}},
		Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "locksidecar",
			"org.opencontainers.image.description": "A distributed lock over HTTP on localhost",
			"org.opencontainers.image.source":      "https://github.com/locksidecar/locksidecar",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     p.Version,
			"org.opencontainers.image.revision":    p.Commit,
		},
	}
	return Image(p.Architecture, config,
		File{Path: "/etc/ssl/certs/ca-certificates.crt", From: p.Authorities, Mode: 0o644},
		File{Path: "/etc/passwd", From: p.Passwd, Mode: 0o644},
		File{Path: "/locksidecar", From: p.Binary, Mode: 0o755},
	)
}
