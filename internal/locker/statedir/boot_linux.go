package statedir

import (
	"os"
	"strings"
	"syscall"
)

// bootID names this boot of the machine. Containers of one machine read the
// same; a container that is started anew does as well.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// The file systems that live in memory.
const (
	tmpfsMagic = 0x01021994
	ramfsMagic = 0x858458f6
)

// inMemory tells whether a file lives in memory alone.
func inMemory(f *os.File) bool {
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &stat); err != nil {
		return true // nothing is known against it
	}
	return int64(stat.Type) == tmpfsMagic || uint32(stat.Type) == ramfsMagic
}
