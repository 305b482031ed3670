// Package examples runs every example as a user would.
package examples

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// workerDir is where the example in Go is built.
var workerDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "worker")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workerDir = dir
	sidecar.Main(m, func() { _ = os.RemoveAll(dir) })
}

// program is an example that runs.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

// start runs an example against the sidecar. It is killed, with all that it
// has started, when the test ends.
func start(t *testing.T, p *sidecar.Process, command ...string) *program {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Fatalf("%s is not installed: run `make test-examples`, or install it", command[0])
	}
	x := &program{t: t, cmd: exec.Command(command[0], command[1:]...), lines: make(chan string, 1000), ended: make(chan struct{})}
	x.cmd.Env = append(os.Environ(), "LOCKSIDECAR_URL="+p.URL,
		"PATH="+filepath.Dir(sidecar.Binary(t))+":"+os.Getenv("PATH"))
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	x.cmd.Stderr = x
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(x.ended)
		scanner := bufio.NewScanner(io.TeeReader(out, x))
		for scanner.Scan() {
			x.lines <- scanner.Text()
		}
		close(x.lines)
		_ = x.cmd.Wait() // ProcessState tells how it ended
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
		<-x.ended
	})
	return x
}

// Write keeps what the program says, for when a test fails.
func (x *program) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.Write(p)
}

func (x *program) said() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// patience is for other processes on a busy machine.
const patience = 30 * time.Second

// waitLine returns the next line of its output, which must begin so.
func (x *program) waitLine(prefix string) string {
	x.t.Helper()
	select {
	case line, ok := <-x.lines:
		if !ok || !strings.HasPrefix(line, prefix) {
			x.t.Fatalf("line %q, want %q…; it has said:\n%s", line, prefix, x.said())
		}
		return line
	case <-time.After(patience):
		x.t.Fatalf("no line %q…; it has said:\n%s", prefix, x.said())
	}
	return ""
}

// waitExit reads its output to the end and returns its exit code; 128 and the
// number of the signal that ended it, as a shell tells it.
func (x *program) waitExit() int {
	x.t.Helper()
	over := time.After(patience)
	for {
		select {
		case _, ok := <-x.lines:
			if ok {
				continue
			}
		case <-over:
			x.t.Fatalf("it has not ended; it has said:\n%s", x.said())
		}
		break
	}
	<-x.ended
	if status, ok := x.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return x.cmd.ProcessState.ExitCode()
}

func (x *program) signal(sig syscall.Signal) {
	x.t.Helper()
	if err := x.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		x.t.Fatal(err)
	}
}

// wantExit fails the test if the program ends otherwise.
func (x *program) wantExit(code int) {
	x.t.Helper()
	if got := x.waitExit(); got != code {
		x.t.Fatalf("exit code %d, want %d; it has said:\n%s", got, code, x.said())
	}
}

// isFree tells whether the sidecar holds the key no more.
func isFree(p *sidecar.Process, key string) func() bool {
	return func() bool {
		status, _ := p.Do("GET", "/locks/"+key, "")
		return status == 404 || status == 410
	}
}
