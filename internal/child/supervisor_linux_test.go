package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// The tests run the command under a supervisor, which is this test binary
// started anew: Run wants a process to itself.

const roleVariable = "CHILD_TEST_ROLE"

func TestMain(m *testing.M) {
	if IsWarden() {
		os.Exit(BeWarden())
	}
	if os.Getenv(roleVariable) == "supervisor" {
		os.Exit(supervise())
	}
	// Started in the background or under nohup, we would pass on that these are ignored.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// order is a line to a supervisor: a command to run or, while one runs, news.
type order struct {
	Run       []string
	ValidFor  time.Duration
	KillAfter time.Duration
	News      *News
	Close     bool // the news
}

// report is a line from a supervisor.
type report struct {
	Said   string
	Result *Result
	Code   int    // of a StartError
	Error  string // likewise, or any other

	Left time.Duration // of the lease, when Run returned
}

// supervise is the supervisor's main function.
func supervise() int {
	signals := CatchSignals()
	if err := os.Unsetenv(roleVariable); err != nil {
		return 1
	}
	orders := json.NewDecoder(os.NewFile(3, "orders"))
	reports := json.NewEncoder(os.NewFile(4, "reports"))
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	var first, next order
	if orders.Decode(&first) != nil {
		return 1
	}
	for {
		news := make(chan News)
		more := make(chan bool)
		over := make(chan struct{})
		go func() {
			defer close(more)
			next = order{}
			for orders.Decode(&next) == nil {
				switch {
				case next.News != nil:
					select {
					case news <- *next.News:
					case <-over:
					}
				case next.Close:
					close(news)
				default:
					more <- true
					return
				}
				next = order{}
			}
		}()
		path, err := Find(first.Run[0])
		var result Result
		until := locker.BootTime().Add(first.ValidFor)
		if err == nil {
			result, err = Run(Config{
				Path: path, Args: first.Run, Env: os.Environ(),
				ValidUntil: until, KillAfter: first.KillAfter,
				News: news, Signals: signals,
				Say: func(format string, args ...any) { _ = reports.Encode(report{Said: fmt.Sprintf(format, args...)}) },
			})
		}
		r := report{Result: &result, Left: until.Sub(locker.BootTime())}
		close(over)
		if err != nil {
			r = report{Error: err.Error()}
			var start *StartError
			if errors.As(err, &start) {
				r.Code = start.Code
			}
		}
		if reports.Encode(r) != nil || !<-more {
			return result.Code
		}
		first = next
	}
}

// supervisor is one running supervisor.
type supervisor struct {
	t       *testing.T
	cmd     *exec.Cmd
	orders  *json.Encoder
	pipe    *os.File // that the orders go through
	Out     *lines   // what the command writes to its standard output
	Reports *lines
	exited  chan struct{}
}

// how a supervisor is started.
type how struct {
	Wrap  []string // precedes it on the command line
	Stdin *os.File
	Attr  *syscall.SysProcAttr
	Shell *console // of which the supervisor is a job
}

func (h how) start(t *testing.T) *supervisor {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(append([]string{}, h.Wrap...), self)
	if h.Shell != nil {
		args = []string{"bash", "--norc", "--noprofile", "-i"}
		h.Attr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	s := &supervisor{t: t, cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), roleVariable+"=supervisor", "SELF="+self, "PS1=prompt: ")
	s.cmd.SysProcAttr = h.Attr
	ordersRead, ordersWrite := pipe(t)
	reportsRead, reportsWrite := pipe(t)
	s.cmd.ExtraFiles = []*os.File{ordersRead, reportsWrite}
	s.orders, s.pipe = json.NewEncoder(ordersWrite), ordersWrite
	s.Reports = readLines(reportsRead)
	complaints, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer complaints.Close()
	s.cmd.Stderr = complaints
	if h.Stdin != nil {
		s.cmd.Stdin = h.Stdin
	}
	var outWrite *os.File
	if h.Shell != nil {
		tty := h.Shell.tty
		s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	} else {
		var outRead *os.File
		outRead, outWrite = pipe(t)
		s.cmd.Stdout = outWrite
		s.Out = readLines(outRead)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{ordersRead, reportsWrite, outWrite} {
		if f != nil {
			f.Close()
		}
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if t.Failed() {
			text, err := os.ReadFile(complaints.Name())
			t.Logf("standard error: %s %v", text, err)
		}
	})
	return s
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// supervised starts a supervisor that runs a command under a lease of an hour.
func supervised(t *testing.T, command ...string) *supervisor {
	t.Helper()
	return how{}.run(t, order{Run: command, ValidFor: time.Hour, KillAfter: time.Second})
}

func (h how) run(t *testing.T, o order) *supervisor {
	t.Helper()
	s := h.start(t)
	s.Order(o)
	return s
}

func (s *supervisor) Order(o order) {
	s.t.Helper()
	if err := s.orders.Encode(o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *supervisor) Pid() int { return s.cmd.Process.Pid }

func (s *supervisor) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Result returns how the command has ended, and what was said on the way.
func (s *supervisor) Result() (r report, said string) {
	s.t.Helper()
	for {
		line := s.Reports.Next(s.t)
		r = report{}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Fatalf("report %q: %v", line, err)
		}
		if r.Said == "" {
			return r, said
		}
		said += r.Said + "\n"
	}
}

// WantSaid waits until something is said that has the words.
func (s *supervisor) WantSaid(words string) {
	s.t.Helper()
	if line := s.Reports.Next(s.t); !strings.Contains(line, words) {
		s.t.Fatalf("it reported %s, want %q", line, words)
	}
}

// Rest returns what the command wrote and was not read yet, once nobody can
// write more. The supervisor gets no further orders.
func (s *supervisor) Rest() []string {
	s.t.Helper()
	s.pipe.Close()
	return s.Out.End(s.t)
}

// WantResult checks how the command has ended.
func (s *supervisor) WantResult(want Result) {
	s.t.Helper()
	r, said := s.Result()
	if r.Error != "" || *r.Result != want {
		s.t.Fatalf("the result is %+v, error %q, want %+v; it was said:\n%s", r.Result, r.Error, want, said)
	}
}

// lines are the lines that come from a process, as they come.
type lines struct {
	mu   sync.Mutex
	got  []string
	over bool
	more chan struct{} // closed and replaced as they come
}

func readLines(from io.Reader) *lines {
	l := &lines{more: make(chan struct{})}
	go func() {
		in := bufio.NewScanner(from)
		for in.Scan() {
			l.add(in.Text(), false)
		}
		l.add("", true)
	}()
	return l
}

func (l *lines) add(line string, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over {
		l.over = true
	} else {
		l.got = append(l.got, line)
	}
	close(l.more)
	l.more = make(chan struct{})
}

const patience = 20 * time.Second

// Next returns the next line.
func (l *lines) Next(t *testing.T) string {
	t.Helper()
	line, ok := l.take(t)
	if !ok {
		t.Fatal("there is no further line")
	}
	return line
}

// End returns once all writers have gone, and what they wrote before.
func (l *lines) End(t *testing.T) (rest []string) {
	t.Helper()
	for {
		line, ok := l.take(t)
		if !ok {
			return rest
		}
		rest = append(rest, line)
	}
}

func (l *lines) take(t *testing.T) (string, bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		more, over := l.more, l.over
		if len(l.got) > 0 {
			line := l.got[0]
			l.got = l.got[1:]
			l.mu.Unlock()
			return line, true
		}
		l.mu.Unlock()
		if over {
			return "", false
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("no line within %v", patience)
		}
	}
}

// pidIn reads a line that ends with the number of a process.
func (l *lines) pidIn(t *testing.T, begins string) int {
	t.Helper()
	line := l.Next(t)
	number, ok := strings.CutPrefix(line, begins+" ")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil {
		t.Fatalf("the line is %q, want %q and a number", line, begins)
	}
	return pid
}

// gone tells whether the process has ended; a zombie has.
func gone(pid int) bool {
	p, ok := readProcess(pid)
	return !ok || p.dead
}

// eventually returns once the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(ms) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nameOf returns the first word of the process's command line.
func nameOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(text), "\x00")
	return name
}
