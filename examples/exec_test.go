package examples

import (
	"strings"
	"syscall"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

func TestACronJobRunsOnce(t *testing.T) {
	p := sidecar.Start(t)
	first := start(t, p, "shell/cron-job.sh", "sh", "-c", "echo runs; exec sleep 60")
	first.waitLine("runs")
	second := start(t, p, "shell/cron-job.sh", "echo", "runs twice")
	second.wantExit(0)
	first.signal(syscall.SIGTERM) // which is passed on
	first.wantExit(128 + int(syscall.SIGTERM))

	// It was quick, and the lock stays taken for those who are late.
	third := start(t, p, "shell/cron-job.sh", "echo", "runs twice")
	third.wantExit(0)
	if said := second.said() + third.said(); strings.Contains(said, "runs twice") {
		t.Errorf("it ran although another had:\n%s", said)
	}
}

func TestOneLeads(t *testing.T) {
	p := sidecar.Start(t)
	lead := []string{"shell/leader.sh", "shop", "sh", "-c", "echo leads $LOCK_FENCING_TOKEN; exec sleep 60"}
	first := start(t, p, lead...)
	one := first.waitLine("leads ")
	second := start(t, p, lead...)
	sidecar.Eventually(t, "the second waits", func() bool {
		return strings.Contains(p.Must(200, "GET", "/locks", ""), `"waiting"`)
	})
	select {
	case line := <-second.lines:
		t.Fatalf("the second: %q, though the first leads", line)
	default:
	}
	first.signal(syscall.SIGTERM)
	two := second.waitLine("leads ")
	if two == one {
		t.Errorf("both lead with one token: %s", one)
	}
}
