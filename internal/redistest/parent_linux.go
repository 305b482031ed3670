package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the server if the test process ends
// without running its clean-ups (a panic, a time-out).
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
