//go:build !linux

package redistest

import "os/exec"

// dieWithParent has no counterpart on this system: a test process that
// panics leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
