package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// resident is how much of a process is in memory, in KiB. To ask the process
// itself would keep it busy.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

func TestAQuietProcessForgetsWhatOnlyItsStartHasNeeded(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}, Wrap: []string{"sh", "-c", "exec " + plainBinary(t) + ` "$@"`}}.serve(t)
	pid := p.cmd.Process.Pid
	atFirst := resident(t, pid)
	eventually(t, 4*trimEvery, "less is resident", func() bool { return resident(t, pid) < atFirst-2<<10 })
	t.Logf("%d KiB after the start, %d now", atFirst, resident(t, pid))
	p.POST("k").Want(t, 201, "held")
	p.DELETE("k").Want(t, 204, "")
}
