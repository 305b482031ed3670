package sidecar

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process if the tests die first.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
