package examples

import (
	"strings"
	"syscall"
	"testing"

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
