//go:build !linux

package child

import "golang.org/x/sys/unix"

func getModes(fd int) (*unix.Termios, error) { return unix.IoctlGetTermios(fd, unix.TIOCGETA) }

func setModes(fd int, modes *unix.Termios) error {
	return unix.IoctlSetTermios(fd, unix.TIOCSETA, modes)
}
