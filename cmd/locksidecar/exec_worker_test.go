package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// A worker is this test binary as the CMD of exec: it writes down in a journal,
// on the boot-time clock, when it works. What several wrote can be compared, as
// all processes share that clock.

const workerVariable = "EXEC_TEST_WORKER"

// job is what a worker does.
type job struct {
	Journal  string
	For      time.Duration // then it ends with Code; 0: it never does
	Code     int
	Stubborn bool          // it ignores TERM; else it ends by itself
	TidiesUp time.Duration // after TERM it works on for so long
}

// line is a line of a journal.
type line struct {
	What  string // begins, works, TERM, ends
	At    locker.Instant
	Pid   int
	Key   string
	Fence locker.Fence
}

func isWorker() bool { return os.Getenv(workerVariable) != "" }

// work is a worker's main function.
func work() int {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &j); err != nil {
		return 99
	}
	out, err := os.OpenFile(j.Journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 99
	}
	fence, _ := strconv.ParseInt(os.Getenv("LOCK_FENCING_TOKEN"), 10, 64)
	note := func(what string) {
		text, _ := json.Marshal(line{what, locker.BootTime(), os.Getpid(), os.Getenv("LOCK_KEY"), locker.Fence(fence)})
		_, _ = out.Write(append(text, '\n')) // one write, so that lines stay whole
	}
	terms := make(chan os.Signal, 8)
	signal.Notify(terms, syscall.SIGTERM, syscall.SIGINT)
	note("begins")
	tick := time.NewTicker(time.Millisecond)
	var end <-chan time.Time
	if j.For > 0 {
		end = time.After(j.For)
	}
	for {
		select {
		case <-tick.C:
			note("works")
		case <-terms:
			note("TERM")
			if !j.Stubborn {
				j.Code, end = 3, time.After(j.TidiesUp)
			}
		case <-end:
			note("ends")
			return j.Code
		}
	}
}

// journal is where the workers of a test write.
type journal struct {
	t    testing.TB
	path string
}

func newJournal(t testing.TB) *journal {
	t.Helper()
	return &journal{t, filepath.Join(t.TempDir(), "journal")}
}

// lines returns what was written so far.
func (j *journal) lines() (all []line) {
	j.t.Helper()
	text, err := os.ReadFile(j.path)
	if err != nil && !os.IsNotExist(err) {
		j.t.Fatal(err)
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	for text := range bytes.Lines(whole) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			j.t.Fatalf("%q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// first returns the first line that the worker with the process number, or any
// if that is 0, has written of that; found is false if there is none.
func (j *journal) first(what string, pid int) (l line, found bool) {
	j.t.Helper()
	for _, l := range j.lines() {
		if l.What == what && (pid == 0 || l.Pid == pid) {
			return l, true
		}
	}
	return line{}, false
}

// await returns that line once it is there.
func (j *journal) await(what string, pid int) (l line) {
	j.t.Helper()
	eventually(j.t, 30*time.Second, "a worker writes: "+what, func() (found bool) {
		l, found = j.first(what, pid)
		return found
	})
	return l
}

// termed tells when a worker that is told to end was told at the earliest: it
// wrote something else right before it heard of that. It returns once that is
// written.
func (j *journal) termed(pid int) (earliest locker.Instant) {
	j.t.Helper()
	j.await("TERM", pid)
	for _, l := range j.lines() {
		switch {
		case l.Pid != pid:
		case l.What == "TERM":
			return earliest
		default:
			earliest = l.At
		}
	}
	return earliest
}

// dead returns when the worker has ended at the latest, once it has.
func (j *journal) dead(pid int) (latest locker.Instant) {
	j.t.Helper()
	eventually(j.t, 30*time.Second, "the worker is dead", func() bool { return processGone(pid) })
	return locker.BootTime()
}

// shift is the time in which one worker was alive, by what it wrote.
type shift struct {
	key         string
	fence       locker.Fence
	from, until locker.Instant
}

func (j *journal) shifts() []shift {
	j.t.Helper()
	byPid := make(map[int]*shift)
	var all []*shift
	for _, l := range j.lines() {
		s := byPid[l.Pid]
		if s == nil || l.What == "begins" { // numbers may be used again
			s = &shift{key: l.Key, fence: l.Fence, from: l.At}
			byPid[l.Pid] = s
			all = append(all, s)
		}
		s.until = l.At
	}
	found := make([]shift, len(all))
	for i, s := range all {
		found[i] = *s
	}
	slices.SortFunc(found, func(a, b shift) int { return cmp.Compare(a.from, b.from) })
	return found
}

// wantNoOverlap checks that no two workers of a key were alive at a time, and
// that their fencing tokens rise. It returns the shortest time between two.
func (j *journal) wantNoOverlap() (closest time.Duration, shifts []shift) {
	j.t.Helper()
	last := make(map[string]shift)
	closest = time.Hour
	shifts = j.shifts()
	for _, s := range shifts {
		before, known := last[s.key]
		last[s.key] = s
		if !known {
			continue
		}
		closest = min(closest, s.from.Sub(before.until))
		if s.from <= before.until {
			j.t.Errorf("%s: two workers were alive at a time, for %v", s.key, before.until.Sub(s.from))
		}
		if s.fence <= before.fence {
			j.t.Errorf("%s: the fencing token %d follows %d", s.key, s.fence, before.fence)
		}
	}
	return closest, shifts
}

// started is an exec that was started.
type started struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    outputBuffer
	errs   outputBuffer
	exited chan struct{}
}

// start starts exec with the command line given; it is killed when the test
// ends.
func (c commander) start(args ...string) *started {
	c.t.Helper()
	return c.startWith(nil, nil, nil, args...)
}

// startWorker starts exec with a worker as CMD.
func (c commander) startWorker(j job, args ...string) *started {
	c.t.Helper()
	return c.startWorkerWith(nil, j, args...)
}

// startWorkerWith has all write their errors to a file, if it is not nil.
func (c commander) startWorkerWith(errs *os.File, j job, args ...string) *started {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.startWith(nil, errs, []string{workerVariable + "=" + string(text)}, append(args, "--", self)...)
}

func (c commander) startWith(stdin io.Reader, errs *os.File, env []string, args ...string) *started {
	c.t.Helper()
	s := &started{t: c.t, cmd: c.command(append([]string{"exec"}, args...)...), exited: make(chan struct{})}
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = stdin, &s.out, &s.errs
	if errs != nil {
		s.cmd.Stderr = errs
	}
	s.cmd.WaitDelay = 5 * time.Second // what CMD has started may keep its output open
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	c.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if strings.Contains(s.errs.String(), "DATA RACE") || strings.Contains(s.errs.String(), "panic:") || c.t.Failed() {
			c.t.Errorf("exec %q wrote:\n%s%s", args, s.out.String(), s.errs.String())
		}
		if randomPart.MatchString(s.errs.String() + s.out.String()) {
			c.t.Error("a token is in the output of exec")
		}
	})
	return s
}

// Signal sends a signal to exec itself.
func (s *started) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && (sig != syscall.SIGKILL || !errors.Is(err, os.ErrProcessDone)) {
		s.t.Fatal(err)
	}
}

// WantExit waits for the end, which must have that code.
func (s *started) WantExit(code int, words ...string) {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(60 * time.Second):
		s.t.Fatalf("exec has not ended; it wrote:\n%s%s", s.out.String(), s.errs.String())
	}
	result{s.cmd.ProcessState.ExitCode(), s.out.String(), s.errs.String()}.want(s.t, code, words...)
}

// way is a way to a lock: through a sidecar, or without one.
type way struct {
	commander
	flags   []string
	sidecar *proc // nil for the direct way
}

// start and its like put the flags of the way before the rest.
func (w way) start(args ...string) *started {
	w.t.Helper()
	return w.commander.start(append(w.flags, args...)...)
}

func (w way) startWorker(j job, args ...string) *started {
	w.t.Helper()
	return w.commander.startWorker(j, append(w.flags, args...)...)
}

func (w way) startWorkerWith(errs *os.File, j job, args ...string) *started {
	w.t.Helper()
	return w.commander.startWorkerWith(errs, j, append(w.flags, args...)...)
}

func (w way) run(args ...string) result {
	w.t.Helper()
	return w.commander.run(append(append([]string{"exec"}, w.flags...), args...)...)
}

// ways returns a way through a sidecar and one without; both to the store at
// that address.
func throughSidecar(t testing.TB, addr string, env ...string) way {
	t.Helper()
	p := startSidecar(t, append([]string{"REDIS_ADDRS=" + addr}, env...)...)
	return way{p.cli(), nil, p}
}

func withoutSidecar(t testing.TB, addr string, env ...string) way {
	t.Helper()
	return way{commander{t, append([]string{"REDIS_ADDRS=" + addr}, env...)}, []string{"--direct"}, nil}
}

// eachWay runs a test once for each way.
func eachWay(t *testing.T, test func(t *testing.T, make func(testing.TB, string, ...string) way)) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB, string, ...string) way{"sidecar": throughSidecar, "direct": withoutSidecar} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make)
		})
	}
}

// isFree tells whether nothing of the lock is in the store.
func isFree(r *redistest.Server, key string) bool { return r.Do("EXISTS", "lock:"+key) == int64(0) }

// processGone tells whether the process has ended; a zombie has.
func processGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
	return state == "Z" || state == "X"
}

func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
