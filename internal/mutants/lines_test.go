package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's directory.
const root = "../.."

// original returns the file that the mutant replaces, and fails the test unless
// the line to be changed is in it.
func (m mutant) original(t *testing.T) (path, code string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%q is in %s %d times, want once: bring the table up to date", m.old, m.file, n)
	}
	return path, string(text)
}

// Without the tag mutants only this is looked at: the mistakes take long.
func TestTheTableIsUpToDate(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.original(t) })
	}
}
