package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes the kernel give us the descendants whose parents have
// ended, instead of giving them to process 1, so that they can be found.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_CHILD_SUBREAPER): %w", err)
	}
	return nil
}

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// watch reaps every child of this process as it ends, those that we have
// adopted too, and returns once the leader has ended, which it leaves to reap.
func (f *family) watch() {
	for {
		pid, code, status, err := awaitChild(unix.P_ALL, 0, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
		switch {
		case err != nil:
			panic(fmt.Sprintf("waitid: %v", err)) // there is the leader to wait for
		case pid != f.leader:
			f.known.reap(pid)
		case code == cldStopped:
			// Taken, else it would be told again and again.
			_, _, _, _ = awaitChild(unix.P_PID, pid, unix.WSTOPPED|unix.WNOHANG)
			f.changes <- change{stopped: syscall.Signal(status)}
		default:
			f.changes <- change{ended: true}
			return
		}
	}
}

// cldStopped is CLD_STOPPED of waitid(2).
const cldStopped = 5

// awaitChild is waitid(2). The bindings leave the fields of a child's siginfo
// nameless: after three numbers comes a union that is aligned like a pointer,
// with the process, its user and its status.
func awaitChild(kind, id, options int) (pid int, code, status int32, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(kind, id, &info, options, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, 0, 0, err
	}
	const union = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	child := (*struct {
		pid    int32
		_      uint32
		status int32
	})(unsafe.Add(unsafe.Pointer(&info), union))
	return int(child.pid), info.Code, child.status, nil
}

// reap forgets the command, which has ended, and returns how.
func (f *family) reap() syscall.WaitStatus {
	<-f.watched
	for {
		if _, err := syscall.Wait4(f.leader, &f.status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return f.status
		}
	}
}

// alive tells whether any of them still runs. Without /proc it tells no.
func (f *family) alive(of recipients) bool {
	all, _ := processes()
	for _, p := range all {
		if p.dead && p.parent == os.Getpid() && p.pid != f.leader {
			f.known.reap(p.pid) // one that we have adopted after the watch was over
		}
	}
	return f.inGroup(all) || of == everyone && len(f.strays(all, os.Getpid())) > 0
}

// inGroup knows no group 0, which the kernel's own threads are in.
func (f *family) inGroup(all []process) bool {
	return f.leader != 0 && slices.ContainsFunc(all, func(p process) bool { return p.group == f.leader && !p.dead })
}

// strays picks the descendants of master that live outside the group. They are
// the command's, save the warden and what the process had before: a program
// keeps the children of the one that it has replaced.
func (f *family) strays(all []process, master int) []process {
	all = slices.DeleteFunc(slices.Clone(all), func(p process) bool { return f.before[p.pid] == p.started })
	return slices.DeleteFunc(descendants(all, master), func(p process) bool {
		return p.group == f.leader || p.dead || f.known.has(p.pid)
	})
}

// children lists the children that this process has, with when they were
// started.
func children() map[int]string {
	all, _ := processes()
	before := make(map[int]string)
	for _, p := range all {
		if p.parent == os.Getpid() {
			before[p.pid] = p.started
		}
	}
	return before
}

func (f *family) signalStrays(sig syscall.Signal) {
	all, _ := processes()
	for _, p := range f.strays(all, os.Getpid()) {
		p.signal(sig)
	}
}

// killDescendants kills what descends from master, if it is not 0, outside the
// group, and tells whether anything, in the group or out of it, was found
// alive.
func (f *family) killDescendants(master int) bool {
	all, _ := processes()
	var strays []process
	if master != 0 {
		strays = f.strays(all, master)
	}
	for _, p := range strays {
		p.signal(syscall.SIGKILL)
	}
	return len(strays) > 0 || f.inGroup(all)
}

// signalSelf sends this process a signal that has worked by the time it returns.
// One for the process would be taken by whichever thread comes to it, while this
// one goes on.
func signalSelf(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}

// signal sends a signal to this very process, not to one that has been given
// its number meanwhile. That it has ended, or may not be signalled, is no
// error here: nothing else can be done about it.
func (p process) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readProcess(p.pid); ok && now.started == p.started {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
