package child

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// wardenName is what a warden is called in a list of processes.
const wardenName = "locksidecar-warden"

// warden is a second process of this program that ends the command where this
// one cannot: when it has been killed, which the kernel tells the command's
// first process alone, and at the end of the lease while it is stopped. It
// learns of both from a pipe, whose other end nobody but this process has.
// Process 1 has none: with it, the kernel ends all processes of a container,
// and it cannot be stopped.
type warden struct {
	orders int // the pipe's end, or -1

	mu  sync.Mutex
	pid int // 0 if there is none, or it has been reaped
}

// hireWarden starts one. The zero warden, which does nothing, is returned with
// the error.
func hireWarden() (*warden, error) {
	w := &warden{orders: -1}
	self := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		path, err := os.Executable()
		if err != nil {
			return w, fmt.Errorf("find this program: %w", err)
		}
		self = path
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return w, err
	}
	defer null.Close()
	var pipe [2]int
	syscall.ForkLock.RLock() // or a program started meanwhile would have the ends as well
	err = syscall.Pipe(pipe[:])
	if err == nil {
		syscall.CloseOnExec(pipe[0])
		syscall.CloseOnExec(pipe[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return w, fmt.Errorf("pipe: %w", err)
	}
	defer syscall.Close(pipe[0])
	pid, err := syscall.ForkExec(self, []string{wardenName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pipe[0])},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // so that no terminal's signal reaches it
	})
	if err != nil {
		_ = syscall.Close(pipe[1])
		return w, fmt.Errorf("start %s: %w", self, err)
	}
	// A warden that is stopped must not hold us up.
	if err := syscall.SetNonblock(pipe[1], true); err != nil {
		_ = syscall.Close(pipe[1])
		return w, err
	}
	w.orders, w.pid = pipe[1], pid
	return w, nil
}

// instruction is what a warden is told, over and over.
type instruction struct {
	Group  int64 // to be ended; 0 while the command is being started
	Master int64 // whose other descendants are to be ended too; 0 for none
	At     locker.Instant
}

const instructionSize = 3 * 8

// order instructs the warden. One that has gone is not missed.
func (w *warden) order(i instruction) {
	if w.orders < 0 {
		return
	}
	frame, err := binary.Append(nil, binary.NativeEndian, i)
	if err == nil {
		_, _ = syscall.Write(w.orders, frame)
	}
}

// dismiss ends the warden's service. The group's number may be another's
// afterwards.
func (w *warden) dismiss() {
	w.mu.Lock()
	if w.pid != 0 {
		_ = syscall.Kill(w.pid, syscall.SIGKILL) // not yet reaped, so the number is still its own
		_, _ = syscall.Wait4(w.pid, nil, 0, nil)
		w.pid = 0
	}
	w.mu.Unlock()
	if w.orders >= 0 {
		_ = syscall.Close(w.orders)
		w.orders = -1
	}
}

// has tells whether the process is the warden.
func (w *warden) has(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pid == w.pid
}

// reap takes in that a child of this process, which may be the warden, has
// ended or was stopped.
func (w *warden) reap(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
	if err == nil && got == pid && pid == w.pid && !status.Stopped() {
		w.pid = 0
	}
}
