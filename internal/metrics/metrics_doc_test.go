package metrics

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryMetricIsExplained holds docs/metrics.md to the page that a fresh
// process serves, which another test keeps true.
func TestEveryMetricIsExplained(t *testing.T) {
	served, err := os.ReadFile(filepath.Join("testdata", "fresh_page.txt"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names, explained []string
	for line := range strings.Lines(string(served)) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			names = append(names, words[2])
		}
	}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(cells[1], " `locksidecar_") {
			explained = append(explained, strings.Trim(cells[1], " `"))
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d metrics found on the page that is served", len(names))
	}
	for _, name := range names {
		if !slices.Contains(explained, name) {
			t.Errorf("docs/metrics.md does not explain %s", name)
		}
	}
	for _, name := range explained {
		if !slices.Contains(names, name) {
			t.Errorf("docs/metrics.md explains %s, which is not served", name)
		}
	}
}
