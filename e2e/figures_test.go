package e2e

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/e2e/figures"
	"github.com/locksidecar/locksidecar/e2e/journal"
)

// measured is what the run has measured. It is written to the file that
// E2E_FIGURES names.
var measured struct {
	sync.Mutex
	figures.Figures
}

// ending notes how long it took until another pod had the lock. The overlap is
// the one in the journal.
func (s *scenario) ending(how, lock string, took time.Duration) {
	s.Helper()
	overlap := journal.Overlap(s.events())
	measured.Lock()
	defer measured.Unlock()
	measured.Endings = append(measured.Endings, figures.Ending{
		How: how, Lock: lock, FreeMS: figures.Milliseconds(took), OverlapMS: figures.Milliseconds(overlap),
	})
}

// kept notes that the holder has kept the lock.
func (s *scenario) kept(how, lock string) {
	measured.Lock()
	defer measured.Unlock()
	measured.Endings = append(measured.Endings, figures.Ending{How: how, Lock: lock, Kept: true})
}

func writeFigures() error {
	name := os.Getenv("E2E_FIGURES")
	if name == "" || theCluster.client == nil {
		return nil
	}
	measured.Lock()
	defer measured.Unlock()
	measured.CPUs, measured.Nodes = runtime.NumCPU(), len(theCluster.nodes)
	text, err := json.MarshalIndent(measured.Figures, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// TestWhatItCosts measures the sidecar in a pod in which nobody asks for a lock,
// and how much later an application begins beside it.
func TestWhatItCosts(t *testing.T) {
	long(t)
	s := begin(t, "costs")
	idle := s.worker("-rounds=0", "-idle")
	s.startPod("idle", s.podSpec(time.Second, idle))
	s.await(time.Minute, "the application has started", is(journal.Start, "idle", time.Time{}))

	start := figures.Start{}
	for n := range 5 {
		for _, with := range []bool{true, false} {
			spec := s.podSpec(time.Second, idle)
			name := "with-" + strconv.Itoa(n)
			if !with {
				spec.InitContainers = nil
				name = "without-" + strconv.Itoa(n)
			}
			created := time.Now()
			s.startPod(name, spec)
			took := s.await(time.Minute, "the application has started", is(journal.Start, name, time.Time{})).At.Sub(created)
			if with {
				start.With = append(start.With, figures.Milliseconds(took))
			} else {
				start.Without = append(start.Without, figures.Milliseconds(took))
			}
			s.deletePod(name, to(int64(0)))
		}
	}
	t.Logf("start in ms: with the sidecar %v, without %v", start.With, start.Without)

	const over = 30 * time.Second
	before, begun := s.cpuTime("idle"), time.Now()
	time.Sleep(over) // to measure over
	took := time.Since(begun)
	cost := figures.Idle{
		RSSKiB:     s.rss("idle"),
		MilliCPU:   1000 * (s.cpuTime("idle") - before).Seconds() / took.Seconds(),
		OverSecond: took.Seconds(),
	}
	t.Logf("the idle sidecar: %d KiB, %.1f m", cost.RSSKiB, cost.MilliCPU)
	if cost.RSSKiB > 14*1024 {
		t.Errorf("the idle sidecar takes %d KiB of memory, want at most 14 MiB", cost.RSSKiB)
	}
	if cost.MilliCPU > 2 {
		t.Errorf("the idle sidecar takes %.1f thousandths of a core, want at most 2", cost.MilliCPU)
	}
	measured.Lock()
	defer measured.Unlock()
	measured.Idle, measured.Start = &cost, &start
}

// process reads a file of the sidecar's first process in its node's /proc.
func (s *scenario) process(pod, file string) string {
	s.Helper()
	return s.onNode(s.T, s.pod(pod).Spec.NodeName, "bash", "-c", "cat /proc/$("+s.pidOf(pod, sidecarName)+")/"+file)
}

// cpuTime is the time that the sidecar's process has had, to a hundredth of a
// second: the kernel's clock ticks.
func (s *scenario) cpuTime(pod string) time.Duration {
	s.Helper()
	_, after, _ := strings.Cut(s.process(pod, "stat"), ") ") // the name may hold spaces
	fields := strings.Fields(after)
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		s.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		s.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss is the sidecar's memory in KiB.
func (s *scenario) rss(pod string) int64 {
	s.Helper()
	for line := range strings.Lines(s.process(pod, "status")) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				s.Fatal(err)
			}
			return n
		}
	}
	s.Fatal("there is no VmRSS")
	return 0
}
