package examples

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// What each program is started with, before the key and the number of steps.
var (
	streaming = map[string][]string{
		"Python": {"python3", "python/worker.py"},
		"Node":   {"node", "node/worker.mjs"},
		"Go":     {}, // is built first
	}
	beating = map[string][]string{
		"PHP":  {"php", "php/heartbeat.php"},
		"Ruby": {"ruby", "ruby/heartbeat.rb"},
	}
)

func forEach(t *testing.T, programs map[string][]string, test func(t *testing.T, command []string)) {
	for name, command := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(command) == 0 {
				path, err := buildWorker()
				if err != nil {
					t.Fatal(err)
				}
				command = []string{path}
			}
			test(t, slices.Clip(command))
		})
	}
}

// buildWorker builds the example in Go beside the program, once.
var buildWorker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(workerDir, "worker")
	out, err := exec.Command("go", "build", "-o", path, "./go/worker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestAWorkerHoldsTheLockUntilItIsDone(t *testing.T) {
	t.Parallel()
	forEach(t, streaming, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		x := start(t, p, append(command, "a/bü", "20")...)
		x.waitLine("held ")
		p.Must(200, "GET", "/locks/a%2Fb%C3%BC", "")
		x.waitLine("done")
		x.wantExit(0)
		sidecar.Eventually(t, "the lock is given back", isFree(p, "a%2Fb%C3%BC"))
	})
}

func TestAWorkerStopsOnLoss(t *testing.T) {
	t.Parallel()
	for _, loss := range []struct {
		name string
		take func(p *sidecar.Process)
	}{
		{"taken away", func(p *sidecar.Process) { p.Must(204, "DELETE", "/locks/job?force=true", "") }},
		{"the sidecar is killed", func(p *sidecar.Process) { p.Kill() }},
		{"the sidecar hangs", func(p *sidecar.Process) { p.Signal(syscall.SIGSTOP) }},
	} {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			forEach(t, streaming, func(t *testing.T, command []string) {
				p := sidecar.Start(t)
				x := start(t, p, append(command, "job", "100000")...)
				x.waitLine("held ")
				loss.take(p)
				x.waitLine("lost")
				x.wantExit(76)
			})
		})
	}
}

func TestTheLockEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	forEach(t, streaming, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		x := start(t, p, append(command, "job", "100000")...)
		x.waitLine("held ")
		x.signal(syscall.SIGKILL)
		sidecar.Eventually(t, "the lock is free", isFree(p, "job"))
	})
}

func TestAWorkerIsToldWhyItDoesNotGetTheLock(t *testing.T) {
	t.Parallel()
	all := maps.Clone(streaming)
	maps.Copy(all, beating)
	forEach(t, all, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		p.Must(204, "POST", "/drain", "")
		x := start(t, p, append(command, "job", "1")...)
		x.wantExit(75)
		if !strings.Contains(x.said(), "draining") {
			t.Errorf("it says:\n%s", x.said())
		}
	})
}

func TestAHeartbeatKeepsTheLock(t *testing.T) {
	t.Parallel()
	forEach(t, beating, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		x := start(t, p, append(command, "job", "140")...) // longer than its TTL
		x.waitLine("held ")
		x.waitLine("done")
		x.wantExit(0)
		p.Must(404, "GET", "/locks/job", "")
	})
}

func TestAHeartbeatTellsOfLoss(t *testing.T) {
	t.Parallel()
	forEach(t, beating, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		x := start(t, p, append(command, "job", "100000")...)
		x.waitLine("held ")
		p.Must(204, "DELETE", "/locks/job?force=true", "")
		x.waitLine("lost")
		x.wantExit(76)
	})
}

func TestTheLockOfAWorkerThatHangsEnds(t *testing.T) {
	t.Parallel()
	forEach(t, beating, func(t *testing.T, command []string) {
		p := sidecar.Start(t)
		x := start(t, p, append(command, "job", "100000")...)
		x.waitLine("held ")
		x.signal(syscall.SIGSTOP)
		sidecar.Eventually(t, "the lock is free", isFree(p, "job"))
		x.signal(syscall.SIGCONT)
		x.waitLine("lost")
		x.wantExit(76)
	})
}

func TestWorkersOfOnePodHaveHandles(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	const count = 5
	x := start(t, p, "python3", "python/workers.py", "job", strconv.Itoa(count))
	x.wantExit(0)
	inside, last, entered := "", 0, 0
	for line := range strings.Lines(x.said()) {
		words := strings.Fields(line)
		who := words[0]
		switch {
		case words[1] == "enters":
			fence, err := strconv.Atoi(words[2])
			if inside != "" || err != nil || fence <= last {
				t.Errorf("%s, while %q is inside and after token %d", line, inside, last)
			}
			inside, last = who, fence
			entered++
		case words[1] == "stranger":
			if got := strings.Join(words[3:], " "); got != "409 owner_mismatch" {
				t.Errorf("a stranger who gives it back gets %s", got)
			}
		case words[1] == "asks" && words[2] == "200":
		case words[1] == "leaves":
			inside = ""
		default:
			t.Errorf("unexpected: %s", line)
		}
	}
	if entered != count {
		t.Errorf("%d of %d workers had their turn:\n%s", entered, count, x.said())
	}
}
