package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. The command's process
// group is a job of its own there: only the group in the foreground may read.
// All methods do nothing if there is no terminal.
type terminal struct {
	fd    int // -1 if there is none
	own   int // this process's group
	modes *unix.Termios
}

func openTerminal() *terminal {
	t := &terminal{fd: -1, own: syscall.Getpgrp()}
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return t
	}
	t.fd = fd
	t.modes, _ = getModes(fd)
	return t
}

func (t *terminal) exists() bool { return t.fd >= 0 }

// interactive tells whether somebody at the terminal deals with the command
// alone: its input and its output are terminals. If its output goes elsewhere,
// such as to a pager that reads from the terminal itself, the foreground stays
// with our group until the command asks for it.
func (t *terminal) interactive() bool { return t.exists() && isTerminal(0) && isTerminal(1) }

func isTerminal(fd int) bool {
	_, err := getModes(fd)
	return err == nil
}

// foreground returns the process group that may read, 0 if there is none.
func (t *terminal) foreground() int {
	if !t.exists() {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// pass puts a group into the foreground if the group from is there. It tells
// whether to is there afterwards.
func (t *terminal) pass(from, to int) bool {
	switch t.foreground() {
	case 0:
		return false
	case to:
		return true
	case from:
		return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to) == nil
	}
	return false
}

// restore undoes what the command has done to the terminal's modes.
func (t *terminal) restore() {
	if t.exists() && t.modes != nil {
		_ = setModes(t.fd, t.modes)
	}
}

func (t *terminal) close() {
	if t.exists() {
		_ = syscall.Close(t.fd)
		t.fd = -1
	}
}
