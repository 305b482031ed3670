package examples

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

func TestCurlHoldsTheLockWhileACommandRuns(t *testing.T) {
	p := sidecar.Start(t)
	x := start(t, p, "shell/bound.sh", "report", "sh", "-c", "echo runs; exit 7")
	x.waitLine("runs")
	x.wantExit(7)
	sidecar.Eventually(t, "the lock is given back", isFree(p, "report"))

	x = start(t, p, "shell/bound.sh", "report", "sh", "-c", "echo runs; exec sleep 60")
	x.waitLine("runs")
	p.Must(200, "GET", "/locks/report", "")
	other := start(t, p, "env", "WAIT=0s", "shell/bound.sh", "report", "echo", "never")
	other.wantExit(75)
	if strings.Contains(other.said(), "never") || !strings.Contains(other.said(), `"held"`) {
		t.Errorf("the second says:\n%s\nwant why it has not got the lock", other.said())
	}
	p.Must(204, "DELETE", "/locks/report?force=true", "")
	x.wantExit(128 + int(syscall.SIGTERM))
}

func TestTheLockLastsUntilACommandThatIsToldToEndHasTidiedUp(t *testing.T) {
	for name, tell := range map[string]func(*program){
		"the script":            func(x *program) { x.signal(syscall.SIGTERM) },
		"everybody":             func(x *program) { _ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGTERM) },
		"the terminal has gone": func(x *program) { _ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			p := sidecar.Start(t)
			busy := filepath.Join(t.TempDir(), "busy")
			if err := os.WriteFile(busy, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			x := start(t, p, "shell/bound.sh", "report", "sh", "-c", `
				again=
				tidy() { [ -z "$again" ] || return; again=1; echo tidies; while [ -e "$0" ]; do sleep 0.05; done; echo "has tidied up"; exit 3; }
				trap tidy TERM HUP
				echo runs
				while :; do sleep 0.05; done`, busy)
			x.waitLine("runs")
			tell(x)
			x.waitLine("tidies")
			for range 5 { // for half a second
				p.Must(200, "GET", "/locks/report", "")
				time.Sleep(100 * time.Millisecond)
			}
			if err := os.Remove(busy); err != nil {
				t.Fatal(err)
			}
			x.waitLine("has tidied up")
			x.wantExit(3)
			sidecar.Eventually(t, "the lock is given back", isFree(p, "report"))
		})
	}
}

func TestACommandThatEndsAtOnceWhenToldToHasItsOwnExitCode(t *testing.T) {
	p := sidecar.Start(t)
	x := start(t, p, "shell/bound.sh", "report", "sh", "-c", `trap "exit 3" TERM; echo runs; while :; do sleep 0.01; done`)
	x.waitLine("runs")
	x.signal(syscall.SIGTERM)
	x.wantExit(3)
	sidecar.Eventually(t, "the lock is given back", isFree(p, "report"))
}

func TestAScriptThatIsToldToEndWhileItWaitsLeavesTheLine(t *testing.T) {
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/report", "owner=other")
	x := start(t, p, "shell/bound.sh", "report", "echo", "never")
	sidecar.Eventually(t, "it waits", func() bool { return strings.Contains(p.Must(200, "GET", "/locks", ""), `"waiting"`) })
	x.signal(syscall.SIGTERM)
	x.wantExit(75)
	p.Must(204, "DELETE", "/locks/report?owner=other", "")
	sidecar.Eventually(t, "nobody has taken the lock", isFree(p, "report"))
}

func TestAnEntrypointReleasesWhatACrashHasLeft(t *testing.T) {
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/a", "owner=importer")
	p.Must(201, "POST", "/locks/b", "owner=importer")
	p.Must(201, "POST", "/locks/c", "owner=other")
	x := start(t, p, "env", "OWNER=importer", "shell/entrypoint.sh", "echo", "started")
	x.waitLine("started")
	x.wantExit(0)
	p.Must(404, "GET", "/locks/a", "")
	p.Must(404, "GET", "/locks/b", "")
	p.Must(200, "GET", "/locks/c?owner=other", "")
}
