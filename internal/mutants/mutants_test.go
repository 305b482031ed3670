//go:build mutants

// Package mutants proves the tests: it makes one mistake at a time in the
// product's code and fails unless the tests notice. `make mutants` runs it.
package mutants

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// timeout ends the tests of a mutant that hangs, which counts as caught.
const timeout = "150s"

func TestTheTestsCatchEveryMutant(t *testing.T) {
	t.Run("original", func(t *testing.T) {
		var packages []string
		for _, m := range mutants {
			packages = append(packages, m.packages...)
		}
		slices.Sort(packages)
		if output, err := runTests(t, nil, slices.Compact(packages)); err != nil {
			t.Fatalf("the tests fail without a mutant:\n%s", output)
		}
	})
	if t.Failed() {
		return
	}
	var tried, caught atomic.Int32
	t.Run("mutant", func(t *testing.T) {
		for _, m := range mutants {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				tried.Add(1)
				if m.isCaught(t) {
					caught.Add(1)
				}
			})
		}
	})
	t.Logf("mutants caught %d/%d", caught.Load(), tried.Load())
	figures.Count(figures.MutantsTried, "", int(tried.Load()))
	figures.Count(figures.MutantsCaught, "", int(caught.Load()))
}

var (
	failure  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	notBuilt = regexp.MustCompile(`\[(build|setup) failed\]`)
)

// isCaught runs the tests on the mutant.
func (m mutant) isCaught(t *testing.T) bool {
	output, err := runTests(t, m.overlay(t), m.packages)
	switch {
	case err == nil:
		t.Errorf("%s: %q instead of %q, and every test passes", m.file, m.new, m.old)
		return false
	case !errors.As(err, new(*exec.ExitError)) || notBuilt.MatchString(output):
		t.Errorf("not run: %v\n%s", err, output)
		return false
	}
	by := "a crash"
	if found := failure.FindStringSubmatch(output); found != nil {
		by = found[1]
	} else if strings.Contains(output, "panic: test timed out") {
		by = "the timeout"
	}
	t.Logf("caught by %s", by)
	return true
}

// overlay returns the files that the mutant replaces, for go build's -overlay.
func (m mutant) overlay(t *testing.T) map[string]string {
	t.Helper()
	original, code := m.original(t)
	mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
	if err := os.WriteFile(mutated, []byte(strings.Replace(code, m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{original: mutated}
}

// runTests runs the packages' tests in short mode, with some files replaced,
// and returns what they print. vet is off: it refuses some mutants by itself.
func runTests(t *testing.T, replace map[string]string, packages []string) (output string, err error) {
	t.Helper()
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-short", "-failfast", "-vet=off", "-count=1", "-timeout=" + timeout, "-overlay=" + file}
	test := exec.CommandContext(t.Context(), "go", append(args, packages...)...)
	test.Dir = root
	test.Env = append(os.Environ(), figures.Variable+"=") // what mutants do is not counted
	printed, err := test.CombinedOutput()
	return string(printed), err
}
