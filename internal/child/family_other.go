//go:build !linux

package child

import (
	"errors"
	"os"
	"syscall"
)

// adoptOrphans: only Linux can. Elsewhere descendants that leave the process
// group are not found.
func adoptOrphans() error { return nil }

// processAttributes: there is no parent-death signal; the warden stands in.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// watch returns once the leader has ended.
func (f *family) watch() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(f.leader, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			f.changes <- change{stopped: status.StopSignal()}
		default:
			f.status = status
			f.changes <- change{ended: true}
			return
		}
	}
}

// reap returns how the command has ended.
func (f *family) reap() syscall.WaitStatus {
	<-f.watched
	return f.status
}

// alive tells whether any process of the group is left.
func (f *family) alive(recipients) bool { return syscall.Kill(-f.leader, 0) == nil }

func (f *family) signalStrays(syscall.Signal) {}

func (f *family) killDescendants(int) bool { return f.alive(group) }

func children() map[int]string { return nil }

func signalSelf(sig syscall.Signal) { _ = syscall.Kill(os.Getpid(), sig) }
