package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process if the test ends without
// running its clean-ups (a panic, a time-out).
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
