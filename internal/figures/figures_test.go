package figures

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// counting is what a process of TestMain does instead of running tests.
const counting = "LOCKSIDECAR_TEST_COUNTING"

func TestMain(m *testing.M) {
	if os.Getenv(counting) == "" {
		os.Exit(m.Run())
	}
	for range 1000 {
		Count(Grants, Single, 2)
	}
	Count(Violations, Single, 0)
	Count(RenewalLate, "", os.Getpid())
}

func TestProcessesThatCountAtTheSameTimeAreAddedUp(t *testing.T) {
	if Wanted() {
		t.Skip("the counts of this run go into its own figures")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "figures")
	var pids []int
	var running sync.WaitGroup
	for range 3 {
		process := exec.Command(self)
		process.Env = append(os.Environ(), counting+"=1", Variable+"="+path)
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, process.Process.Pid)
		running.Go(func() {
			if err := process.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	want := Totals{Grants: {Single: 6000}, Violations: {Single: 0}, RenewalLate: {"": slices.Max(pids)}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestALineThatIsNoCountIsAnError(t *testing.T) {
	if _, err := Read(strings.NewReader("{\"row\":\"grants\",\"n\":1}\nnonsense\n")); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error is %v", err)
	}
}

// full is a run that has counted everything.
func full() Totals {
	t := Totals{MutantsTried: {"": 89}, MutantsCaught: {"": 88}, RenewalLate: {"": 12_340}, RenewalLateBusy: {"": 99_000}}
	for _, row := range slices.Concat(checked, faults) {
		t[row] = map[Column]int{Virtual: 1_234_567}
	}
	t[Violations] = map[Column]int{Virtual: 0, Redlock: 0}
	return t
}

func TestTheTablesShowWhatWasCounted(t *testing.T) {
	got, err := full().Markdown(Run{Commit: "abc", Redis: "7.0.15", Go: "go1.26", Seed: "7", Day: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"on 2026-11-30: commit abc, Redis 7.0.15, go1.26, seed 7 of the",
		"Of 89 mistakes that `make mutants` puts into the code, the tests catch 88.",
		"came later than\n12.3 ms after its time",
		"as processors, 99.0 ms",
		"| checked | virtual time |\n|---|--:|\n",
		"| grants | 1,234,567 |\n",
		"| " + string(Violations) + " | 0 |\n",
		"| a slot is moved | 1,234,567 |\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("there is no %q in:\n%s", line, got)
		}
	}
}

func TestARunThatHasNotCountedEverythingIsNotShown(t *testing.T) {
	for row := range full() {
		part := full()
		delete(part, row)
		if _, err := part.Markdown(Run{}); err == nil || !strings.Contains(err.Error(), string(row)) {
			t.Errorf("without %q: %v", row, err)
		}
	}
}
