//go:build !linux

package statedir

import "os"

// bootID is empty: outside Linux the locker's instants begin anew with every
// process, so no lease of an earlier one can be believed.
func bootID() string { return "" }

func inMemory(*os.File) bool { return true }
