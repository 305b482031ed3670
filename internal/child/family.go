package child

import (
	"errors"
	"runtime"
	"syscall"
)

// recipients says which of the command's processes a signal is for.
type recipients int

const (
	leader   recipients = iota // the command itself
	group                      // and all that have stayed in its process group
	everyone                   // and those that have left it, where they can be found
)

// change is what became of the command itself.
type change struct {
	stopped syscall.Signal // by which signal it was stopped
	ended   bool
}

// family is the command, as the leader of a process group, and what descends
// from it. The number of the group cannot be given to others before reap has
// been called, as the leader is kept as a zombie until then; where that is not
// possible, not before the group is empty.
type family struct {
	leader  int // its number is also the group's
	changes chan change
	watched chan struct{} // closed once the leader has ended
	known   *warden
	before  map[int]string     // children that this process had before
	status  syscall.WaitStatus // how it has ended
}

// startFamily starts a program. On Linux the kernel kills it as soon as the
// *thread* that has started it ends, so that thread does nothing else until
// then.
func startFamily(path string, args, env []string, attr *syscall.SysProcAttr, before map[int]string, known *warden) (*family, error) {
	f := &family{changes: make(chan change, 8), watched: make(chan struct{}), known: known, before: before}
	started := make(chan error)
	go func() {
		defer close(f.watched)
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		fork := func() (pid int, err error) {
			return syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
		}
		pid, err := fork()
		if err != nil && attr.Foreground { // perhaps because the terminal has gone
			attr.Foreground = false
			pid, err = fork()
		}
		f.leader = pid
		started <- err
		if err == nil {
			f.watch()
		}
	}()
	if err := <-started; err != nil {
		<-f.watched
		return nil, err
	}
	return f, nil
}

// signal sends a signal. That there is nobody left to get it is no error.
func (f *family) signal(sig syscall.Signal, to recipients) error {
	target := -f.leader
	if to == leader {
		target = f.leader
	}
	err := syscall.Kill(target, sig)
	if to == everyone {
		f.signalStrays(sig)
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
