package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

func read(t *testing.T, text string) []journal.Event {
	t.Helper()
	events, err := journal.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, journal string
		overlap       time.Duration
		want          []string // what each finding begins with
	}{
		{"one after the other", "10 enter k 1 a\n20 exit k 1 a\n20 enter k 2 b\n30 exit k 2 b\n", 0, nil},
		{"two at once", "10 enter k 1 a\n20 enter k 2 b\n30 exit k 1 a\n40 exit k 2 b\n", 10, []string{"overlap of 0s: a had k"}},
		{"one within the other", "10 enter k 1 a\n20 enter k 2 b\n25 exit k 2 b\n90 exit k 1 a\n", 5, []string{"overlap"}},
		{"the first does not end and goes on", "10 enter k 1 a\n15 beat k 1 a\n30 beat k 1 a\n29 enter k 2 b\n", 0, []string{"overlap"}},
		{"the first is killed", "10 enter k 1 a\n15 beat k 1 a\n29 enter k 2 b\n", 0, nil},
		{"a beat after the exit is work too", "10 enter k 1 a\n15 exit k 1 a\n20 enter k 2 b\n21 beat k 1 a\n", 0, []string{"overlap"}},
		{"a loss that is noticed too late", "10 enter k 1 a\n20 enter k 2 b\n21 lost k 1 a\n", 0, []string{"overlap"}},
		{"other keys", "10 enter k 1 a\n20 enter l 1 b\n30 exit k 1 a\n40 exit l 1 b\n", 0, nil},
		{"the same token again", "10 enter k 1 a\n20 exit k 1 a\n20 enter k 1 b\n", 0, []string{"the fencing token did not rise"}},
		{"a lower token", "10 enter k 2 a\n20 exit k 2 a\n20 enter k 3 b\n21 exit k 3 b\n22 enter k 1 a\n", 0,
			[]string{"the fencing token did not rise", "the fencing token did not rise"}},
		{"only what is told of the process", "10 start - 0 a\n20 term - 0 a\n30 end - 0 a\n", 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := read(t, tt.journal)
			got := journal.Check(events)
			if len(got) != len(tt.want) {
				t.Fatalf("found %q, want %d", got, len(tt.want))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("found %q, want %q…", got[i], tt.want[i])
				}
			}
			if got := journal.Overlap(events); got != tt.overlap {
				t.Errorf("overlap %d ns, want %d", got, tt.overlap)
			}
		})
	}
}

func TestReadDir(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.log": "10 enter k 1 a\n30 exit k 1 a\n",
		"b.log": "20 enter k 2 b\n25 beat k 2",
		"other": "nothing",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	events, err := journal.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range events {
		lines = append(lines, e.String())
	}
	if got, want := strings.Join(lines, "; "), "10 enter k 1 a; 20 enter k 2 b; 30 exit k 1 a"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(folder, "c.log"), []byte("some words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.ReadDir(folder); err == nil {
		t.Error("a line that is no event was read without an error")
	}
}

func TestFenced(t *testing.T) {
	events := read(t, "10 enter k 1 a\n11 beat k 1 a\n12 enter l 9 c\n20 enter k 2 b\n21 beat k 1 a\n22 beat k 2 b\n23 beat k 1 a\n24 exit k 1 a\n")
	if taken, refused := journal.Fenced(events); taken != 5 || refused != 2 {
		t.Errorf("%d writes were taken and %d refused, want 5 and 2", taken, refused)
	}
}
