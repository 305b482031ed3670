// Package sidecar starts the real program for tests that look at it from
// outside, as a user would. It imports nothing of the product.
package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// findRoot returns the folder of the product's module, which is above the
// folder that a test runs in.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "locksidecar")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no folder above this one has cmd/locksidecar")
}

var binaryDir string // empty as long as nothing was built

// binary builds the program once and returns its path. It has no race
// detector: the tests of the product itself have.
var binary = sync.OnceValues(func() (string, error) {
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "locksidecar")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir, "./cmd/locksidecar")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return filepath.Join(dir, "locksidecar"), nil
})

// Main is what a package's TestMain calls: it runs the tests, cleans up,
// removes what was built for them and exits.
func Main(m *testing.M, cleanup ...func()) {
	code := m.Run()
	for _, f := range cleanup {
		f()
	}
	if binaryDir != "" {
		_ = os.RemoveAll(binaryDir)
	}
	os.Exit(code)
}

// Binary returns the path of the program, which is named locksidecar.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Process is one serving process of the program.
type Process struct {
	URL   string // of the API, such as http://127.0.0.1:40001
	Admin string // of the admin door

	t      testing.TB
	cmd    *exec.Cmd
	log    buffer
	exited chan struct{}
}

// Start starts a process and returns once its doors are open. Settings are
// NAME=value without the prefix LOCKSIDECAR_; later ones win. Unless they say
// otherwise, it needs no Redis and listens on free ports of loopback. It is
// killed when the test ends.
func Start(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(Binary(t)), exited: make(chan struct{})}
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = &p.log
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	defaults := []string{
		"REDIS_MODE=memory", "LISTEN=127.0.0.1:0", "ADMIN_LISTEN=127.0.0.1:0",
		"LOG_LEVEL=debug", "LOG_FORMAT=json", "HOLDER=shop/web-0",
	}
	for _, setting := range append(defaults, settings...) {
		p.cmd.Env = append(p.cmd.Env, "LOCKSIDECAR_"+setting)
	}
	dieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState tells how it ended
		close(p.exited)
	}()
	t.Cleanup(p.Kill)
	p.findDoors()
	return p
}

// findDoors reads from the log where the process listens.
func (p *Process) findDoors() {
	p.t.Helper()
	var doors struct {
		API   []string
		Admin string
	}
	Eventually(p.t, "the log tells the doors", func() bool {
		if p.hasExited() {
			p.t.Fatalf("the process has ended; its log:\n%s", p.Log())
		}
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, `"msg":"listening"`) && strings.HasSuffix(line, "\n") {
				return json.Unmarshal([]byte(line), &doors) == nil && len(doors.API) > 0
			}
		}
		return false
	})
	p.URL, p.Admin = "http://"+doors.API[0], "http://"+doors.Admin
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%v: %v", sig, err)
	}
}

// Kill ends the process by SIGKILL and returns once it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended by itself
	<-p.exited
}

// WaitExit returns the exit code once the process has ended, which it must
// within a minute; -1 if a signal ended it.
func (p *Process) WaitExit() int {
	p.t.Helper()
	Eventually(p.t, "the process ends", p.hasExited)
	return p.cmd.ProcessState.ExitCode()
}

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Log returns what the process has logged so far.
func (p *Process) Log() string { return p.log.String() }

// buffer collects what a process writes.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Eventually returns once the condition holds, which it must within a minute. It
// is for what happens in other processes, on a machine that may be busy.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// doors are those that FreeDoor has given away.
var doors sync.Map

// FreeDoor returns an address of loopback that nobody listens on. Its port is
// given away once, and lies below those that systems choose by themselves: nobody
// takes it before it is used, or while its process is away.
func FreeDoor(t testing.TB) string {
	t.Helper()
	const first, end = 10000, 12000 // where redistest chooses none
	var last error
	for range 100 {
		door := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(end-first))
		if _, given := doors.LoadOrStore(door, true); given {
			continue
		}
		l, err := net.Listen("tcp", door)
		if err != nil {
			last = err
			continue
		}
		_ = l.Close()
		return door
	}
	t.Fatalf("no free port found: %v", last)
	return ""
}
