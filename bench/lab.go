package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// lab is what all sections share: the programs to measure, a folder, and how
// long to look.
type lab struct {
	quick bool

	dir                  string // temporary
	source               string // of this program; the sidecar's is one above
	sidecar, bareHandler string // programs, as they are shipped: stripped
	redisVersion         string

	points []point // for the charts
}

func newLab(ctx context.Context, quick bool) (*lab, error) {
	l := &lab{quick: quick}
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/locksidecar/locksidecar/bench").Output()
	if err != nil {
		return nil, fmt.Errorf("find the source (run bench from its own folder): %w", err)
	}
	l.source = strings.TrimSpace(string(out))
	if l.dir, err = os.MkdirTemp("", "locksidecar-bench-"); err != nil {
		return nil, err
	}
	if err := l.prepare(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) prepare(ctx context.Context) error {
	version, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return fmt.Errorf("redis-server is needed (apt-get install redis-server): %w", err)
	}
	for word := range strings.FieldsSeq(string(version)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			l.redisVersion = v
		}
	}
	l.say("build …")
	l.sidecar, l.bareHandler = filepath.Join(l.dir, "locksidecar"), filepath.Join(l.dir, "barehandler")
	if err := build(ctx, filepath.Dir(l.source), "./cmd/locksidecar", l.sidecar); err != nil {
		return err
	}
	return build(ctx, l.source, "./barehandler", l.bareHandler)
}

// build compiles a program as a release does.
func build(ctx context.Context, dir, pkg, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}

func (l *lab) close() error { return os.RemoveAll(l.dir) }

// say reports progress.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// rounds is how often each subject is measured; odd, so that one is the median.
func (l *lab) rounds() int {
	if l.quick {
		return 3
	}
	return 7
}

// slice is how long one subject is measured in one round.
func (l *lab) slice() time.Duration {
	if l.quick {
		return 300 * time.Millisecond
	}
	return 1500 * time.Millisecond
}
