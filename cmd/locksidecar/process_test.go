package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(work())
	}
	// Started in the background or under nohup, we would pass on that these are ignored.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	code := m.Run()
	if binaryDir != "" {
		_ = os.RemoveAll(binaryDir)
	}
	os.Exit(code)
}

var binaryDir string // empty as long as nothing was built

// binary builds the program once for all tests that run it, with the race
// detector if they have it themselves, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "locksidecar")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "locksidecar")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// writeProgram writes a file that is to be run. A process that is started elsewhere
// meanwhile would have it open, and it could not be run before that has begun.
func writeProgram(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

// launch says how a process is started.
type launch struct {
	// Args are the command line; none serves.
	Args []string

	// Env holds settings as NAME=value, without the prefix LOCKSIDECAR_. A
	// name that begins with POD_ stays as it is. Later ones win. Unless it
	// says otherwise, the process listens on free ports and logs at debug.
	Env []string

	// Wrap precedes the program on the command line. It must replace itself
	// by the program (exec), so that the process stays the one that was
	// started: {"sh", "-c", `ulimit -n 64; exec "$0" "$@"`}.
	Wrap []string
}

// proc is one process of the program. Every test's processes are checked when
// it ends; see [record].
type proc struct {
	URL   string // of the API, such as http://127.0.0.1:40001
	Admin string // of the admin door; empty if it is off

	t       testing.TB
	cmd     *exec.Cmd
	log     outputBuffer // stderr
	out     outputBuffer // stdout
	exited  chan struct{}
	client  *http.Client
	visitor *http.Client // of the admin door
	record  *record
	secrets []string
	env     []string // as it was launched with
}

// startSidecar starts a serving process and returns once it answers; see
// [launch] for env. It is killed when the test ends.
func startSidecar(t testing.TB, env ...string) *proc {
	t.Helper()
	return launch{Env: env}.serve(t)
}

// serve starts a process and returns once it answers.
func (l launch) serve(t testing.TB) *proc {
	t.Helper()
	p := l.start(t)
	p.findDoors()
	eventually(t, 30*time.Second, "the process answers", func() bool {
		res, err := p.client.Get(p.URL + "/locks")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK || res.StatusCode == http.StatusUnauthorized
	})
	return p
}

// start starts a process and waits for nothing.
func (l launch) start(t testing.TB) *proc {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, exited: make(chan struct{}), record: recordOf(t), env: l.Env}
	command := append(append(append([]string{}, l.Wrap...), path), l.Args...)
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.out
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=halt_on_error=1 atexit_sleep_ms=0"}
	env := []string{"LISTEN=127.0.0.1:0", "ADMIN_LISTEN=127.0.0.1:0", "LOG_LEVEL=debug", "LOG_FORMAT=json"}
	for _, setting := range append(env, l.Env...) {
		name, value, _ := strings.Cut(setting, "=")
		if strings.HasSuffix(name, "PASSWORD") && value != "" {
			p.secrets = append(p.secrets, value)
		}
		if !strings.HasPrefix(name, "POD_") {
			setting = envPrefix + "_" + setting
		}
		p.cmd.Env = append(p.cmd.Env, setting)
	}
	dieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ExitCode tells how it ended
		close(p.exited)
	}()
	p.client, p.visitor = newClient(""), newClient("")
	t.Cleanup(p.finish)
	p.record.processes = append(p.record.processes, p)
	return p
}

// findDoors reads from the log where the process listens.
func (p *proc) findDoors() {
	p.t.Helper()
	var doors struct {
		API   []string
		Admin string
	}
	eventually(p.t, 30*time.Second, "the log tells the doors", func() bool {
		if p.Exited() {
			p.t.Fatalf("the process has ended with code %d; its log:\n%s", p.ExitCode(), p.Log())
		}
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, `"msg":"listening"`) && strings.HasSuffix(line, "\n") {
				return json.Unmarshal([]byte(line), &doors) == nil && len(doors.API) > 0
			}
		}
		return false
	})
	p.URL = "http://" + doors.API[0]
	if strings.HasPrefix(doors.API[0], "/") {
		p.URL = "http://localhost"
		p.client = newClient(doors.API[0])
	}
	if doors.Admin != "off" {
		_, port, err := net.SplitHostPort(doors.Admin)
		if err != nil {
			p.t.Fatal(err)
		}
		p.Admin = "http://127.0.0.1:" + port
	}
}

// Pid returns the number of the process.
func (p *proc) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process. After SIGTERM and SIGINT it need not
// keep what it has promised for its locks.
func (p *proc) Signal(sig syscall.Signal) {
	p.t.Helper()
	if sig == syscall.SIGTERM || sig == syscall.SIGINT {
		p.record.leaves(p, locker.BootTime())
		p.count(figures.SidecarEnded)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%v: %v", sig, err)
	}
}

// Stop freezes the process.
func (p *proc) Stop() {
	p.t.Helper()
	p.count(figures.SidecarFrozen)
	p.Signal(syscall.SIGSTOP)
}

// Cont lets a frozen process go on.
func (p *proc) Cont() { p.t.Helper(); p.Signal(syscall.SIGCONT) }

// Kill ends the process by SIGKILL and returns once it is gone.
func (p *proc) Kill() {
	p.t.Helper()
	p.count(figures.SidecarKilled)
	p.end()
}

func (p *proc) end() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// mode is the column in which what the process does is counted.
func (p *proc) mode() figures.Column {
	mode := figures.Single
	for _, setting := range p.env { // later ones win
		if value, found := strings.CutPrefix(setting, "REDIS_MODE="); found {
			mode = figures.Column(value)
		}
	}
	if slices.Contains(p.cmd.Args, "dev") {
		mode = figures.Dev
	}
	return mode
}

func (p *proc) count(what figures.Row) { figures.Count(what, p.mode(), 1) }

// WaitExit returns the exit code once the process has ended, which it must
// within the time given.
func (p *proc) WaitExit(within time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.t.Fatalf("the process has not ended within %v; its log:\n%s", within, p.Log())
	}
	return p.ExitCode()
}

// Exited tells whether the process has ended.
func (p *proc) Exited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// ExitCode returns the exit code of a process that has ended, -1 if a signal
// ended it.
func (p *proc) ExitCode() int {
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// Log returns what the process has logged so far.
func (p *proc) Log() string { return p.log.String() }

// Stdout returns what the process has printed so far.
func (p *proc) Stdout() string { return p.out.String() }

// AwaitLog returns once the log contains text.
func (p *proc) AwaitLog(text string) {
	p.t.Helper()
	eventually(p.t, 30*time.Second, fmt.Sprintf("the log says %q", text), func() bool {
		return strings.Contains(p.Log(), text)
	})
}

// outputBuffer collects what a process writes.
type outputBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *outputBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// eventually returns once the condition holds, which it must within the time
// given. It is for what happens in other processes.
func eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if condition() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
