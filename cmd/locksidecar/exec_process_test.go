package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestExecHoldsTheLockWhileItsCommandRuns(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		rival := withoutSidecar(t, r.Addr(), "HOLDER=another")
		for _, code := range []int{0, 1, 7, 75, 76, 255} {
			stdin, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			s := w.commander.startWith(stdin, nil, []string{"LOCK_KEY=stale", "OTHER=kept"}, append(w.flags,
				"--ttl", "10s", "--note", "a note", "k", "--", "sh", "-c", `echo "$LOCK_KEY $LOCK_FENCING_TOKEN $OTHER"; cat; exit "$0"`, strconv.Itoa(code))...)
			stdin.Close()
			eventually(t, 20*time.Second, "the command runs", func() bool { return strings.Contains(s.out.String(), "kept") })
			if w.sidecar != nil {
				got := w.sidecar.GET("k").Want(t, 200, "held")
				if want := fmt.Sprintf("k %d kept\n", got.JSON.Fence); s.out.String() != want || got.JSON.Note != "a note" {
					t.Errorf("the command was told %q, want %q; the note is %q", s.out.String(), want, got.JSON.Note)
				}
			}
			if left := r.PTTL("lock:k"); left <= 0 || left > 10*time.Second {
				t.Errorf("the lease has %v left", left)
			}
			rival.run("-n", "k", "--", "true").want(t, exitNotAcquired, "the lock is held")
			if _, err := feed.WriteString("to standard input\n"); err != nil {
				t.Fatal(err)
			}
			ending := locker.BootTime()
			feed.Close()
			s.WantExit(code, "to standard input")
			if w.sidecar != nil {
				w.sidecar.record.gaveUp(w.sidecar, "k", ending)
			}
			if !isFree(r, "k") {
				t.Error("the lock is not free when exec has ended")
			}
			if errs := s.errs.String(); errs != "" {
				t.Errorf("it said %q", errs)
			}
		}
	})
}

func TestTheExitCodesOfExec(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.run("k", "--", "sh", "-c", "kill -USR1 $$").want(t, 128+int(syscall.SIGUSR1))
		w.run("k", "--", "no-such-command").want(t, exitNotFound, `"no-such-command"`)
		w.run("k", "--", script).want(t, exitNotExecutable, "permission denied")
		w.run("a//b", "--", "true").want(t, exitUsage, "empty segment")
		w.run("--ttl", "10ms", "k", "--", "true").want(t, exitUsage, "must be from 1s")
		w.run("--ttl", "9s", "--kill-after", "3001ms", "k", "--", "true").want(t, exitUsage, "a third of the lease")
		w.run("--kill-after", "10001ms", "k", "--", "true").want(t, exitUsage, "a third of the lease", "30s")
		if !isFree(r, "k") {
			t.Error("one of them has left the lock behind")
		}

		r.Do("RPUSH", "lock:list", "x")
		w.run("-w", "5s", "-E", "0", "list", "--", "true").want(t, exitUnavailable, "not a lock")
		holder := w.start("k", "--", "sleep", "1000")
		awaitHeld(t, r, "k")
		w.run("-n", "k", "--", "true").want(t, exitNotAcquired, "the lock is held")
		w.run("-w", "300ms", "k", "--", "true").want(t, exitNotAcquired, "the wait is over")
		w.run("-w", "0", "-E", "9", "k", "--", "true").want(t, 9, "the lock is held")
		w.run("-n", "-E", "0", "k", "--", "true").want(t, 0, "the lock is held")
		r.Stop()
		w.run("-n", "free", "--", "true").want(t, exitUnavailable)
		r.Cont()
		r.Kill()
		w.run("-n", "free", "--", "true").want(t, exitUnavailable, "cannot be reached")
		holder.Signal(syscall.SIGKILL)
	})
}

// awaitHeld returns once something is at the lock's key.
func awaitHeld(t testing.TB, r *redistest.Server, key string) {
	t.Helper()
	eventually(t, 20*time.Second, key+" is held", func() bool { return !isFree(r, key) })
}

func TestACommandLineOfExecThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	c := commander{t, []string{"URL=unix:///nonexistent/s"}}
	for text, want := range map[string]string{
		"exec":                          "KEY is missing",
		"exec -- true":                  "KEY is missing",
		"exec k":                        "CMD is missing",
		"exec k --":                     "CMD is missing",
		"exec k true":                   "put -- before CMD, as in: locksidecar exec k -- true",
		"exec k j -- true":              `what is "j"?`,
		"exec -n -w 5s k -- true":       "leave out --wait",
		"exec -w 5 k -- true":           "write 5s",
		"exec -E 256 k -- true":         "from 0 to 255",
		"exec -E -1 k -- true":          "from 0 to 255",
		"exec --kill-after x k -- true": "no duration",
		"exec --killafter 1s k -- true": "did you mean --kill-after?",
		"exec --owner= k -- true":       "is the variable set?",
		"exec --url ftp://x k -- true":  "http://host:port",
	} {
		c.run(strings.Fields(text)...).want(t, exitUsage, want, "locksidecar exec --help")
	}
	c.run("exec", "-n", "k", "--", "true").want(t, exitUnavailable, "no sidecar at unix:///nonexistent/s")
}

func TestExecWithoutASidecarNeedsItsSettings(t *testing.T) {
	t.Parallel()
	commander{t, nil}.run("exec", "--direct", "k", "--", "true").want(t, exitSettings, "LOCKSIDECAR_REDIS_ADDRS")
	commander{t, []string{"REDIS_MODE=memory"}}.run("exec", "--direct", "k", "--", "true").want(t, exitSettings, "would exclude nobody")
	r := redistest.Start(t)
	c := commander{t, []string{"REDIS_ADDRS=" + r.Addr(), "DEFAULT_TTL=5s", "HOLDER=here", "KEY_PREFIX=p:"}}
	s := c.start("--direct", "k", "--", "sleep", "1000")
	eventually(t, 20*time.Second, "the lock is held under the settings", func() bool {
		left := r.PTTL("p:k")
		return left > 0 && left <= 5*time.Second
	})
	if value, _ := r.Get("p:k"); !strings.HasPrefix(value, "ls1/here/") {
		t.Error("the holder is another")
	}
	s.Signal(syscall.SIGTERM)
	s.WantExit(143)
	commander{t, []string{"REDIS_ADDRS=" + r.Addr()}}.run("exec", "--direct", "--owner", hostname(t), "k", "--", "true").
		want(t, exitUsage, "this pod's own name")
}

func hostname(t testing.TB) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestExecOverASocketAndWithAToken(t *testing.T) {
	t.Parallel()
	token := tokenFile(t)
	r := redistest.Start(t)
	p := on(t, r, "LISTEN=unix://"+filepath.Join(socketDir(t), "s"), "API_TOKEN_FILE="+token)
	p.cli("API_TOKEN_FILE="+token).run("exec", "k", "--", "sh", "-c", "exit 4").want(t, 4)
	p.cli().run("exec", "k", "--", "true").want(t, exitUnavailable, "--token-file")
	p.cli().run("exec", "--token-file", token, "k", "--", "sh", "-c", "exit 5").want(t, 5)
}

func TestExecWaitsInLineAndLeavesItOnASignal(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		other := withoutSidecar(t, r.Addr(), "HOLDER=another")
		holder := other.start("k", "--", "sleep", "1000")
		awaitHeld(t, r, "k")
		for sig, code := range map[syscall.Signal]int{
			syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129, syscall.SIGQUIT: 131, syscall.SIGUSR1: 138, syscall.SIGUSR2: 140,
		} {
			s := w.start("k", "--", "echo", "it has run")
			eventually(t, 20*time.Second, "it is in line", func() bool { return places(r, "k") == 1 })
			s.Signal(syscall.SIGWINCH)
			s.Signal(sig)
			s.WantExit(code)
			eventually(t, 20*time.Second, "nobody is in line", func() bool { return places(r, "k") == 0 })
			if s.out.String() != "" {
				t.Error("the command was run")
			}
		}
		s := w.start("-w", "1m", "k", "--", "echo", "it has run")
		eventually(t, 20*time.Second, "it is in line", func() bool { return places(r, "k") == 1 })
		holder.Signal(syscall.SIGTERM)
		holder.WantExit(143)
		s.WantExit(0, "it has run")
	})
}

func TestExecWaitsForASidecarThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	socket := filepath.Join(socketDir(t), "s")
	s := commander{t, []string{"URL=unix://" + socket}}.start("k", "--", "echo", "it has run")
	on(t, r, "LISTEN=unix://"+socket, "MAX_WAIT=2s")
	s.WantExit(0, "it has run")
}

func TestExecWaitsLongerThanTheSidecarAllows(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, most := range []string{"0s", "1100ms"} {
		p := on(t, r, "MAX_WAIT="+most)
		holder := p.cli().start("k", "--", "sleep", "2.5")
		awaitHeld(t, r, "k")
		p.cli().run("exec", "-w", "1m", "k", "--", "echo", "it has run").want(t, 0, "it has run")
		holder.WantExit(0)
	}
}

func TestOneOwnerRunsOneCommandAtATime(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		for range 3 {
			w.startWorker(job{Journal: j.path, For: 300 * time.Millisecond}, "--owner", "w1", "--ttl", "5s", "k")
		}
		eventually(t, 60*time.Second, "all three have worked", func() bool {
			n := 0
			for _, l := range j.lines() {
				if l.What == "ends" {
					n++
				}
			}
			return n == 3
		})
		j.wantNoOverlap()
		if w.sidecar != nil {
			w.run("--owner", "w2", "k", "--", "true").want(t, 0)
			w.sidecar.POST("k", "owner=w1").Finally(t, 201, "")
			w.run("-n", "--owner", "w1", "k", "--", "true").want(t, exitNotAcquired)
			w.sidecar.DELETE("k", "owner=w1").Finally(t, 204, "")
		}
	})
}

func TestAMinimumHoldLetsOneOfManyRunACronJob(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		dir := t.TempDir()
		var all []*started
		tick := []string{"-n", "-E", "0", "--min-hold", "1m", "every-minute", "--", "sh", "-c", `echo ran >>"$0"`, dir + "/runs"}
		var ways []way
		for i := range 5 {
			w := make(t, r.Addr(), fmt.Sprintf("HOLDER=pod-%d", i))
			ways, all = append(ways, w), append(all, w.start(tick...))
		}
		for i, s := range all {
			<-s.exited
			for try := 0; s.cmd.ProcessState.ExitCode() == exitUnavailable && try < 5; try++ { // the store was slow
				s = ways[i].start(tick...)
				<-s.exited
			}
			s.WantExit(0)
		}
		late := make(t, r.Addr(), "HOLDER=late")
		late.run("-n", "-E", "0", "--min-hold", "1m", "every-minute", "--", "sh", "-c", `echo late >>"$0"`, dir+"/runs").want(t, 0, "held")
		if runs, err := os.ReadFile(dir + "/runs"); err != nil || string(runs) != "ran\n" {
			t.Errorf("it has run: %q, %v", runs, err)
		}
		// A command that cannot be started has not done the work.
		broken := filepath.Join(dir, "broken")
		writeProgram(t, broken, []byte("#!/no/such/interpreter\n"))
		late.run("--min-hold", "1m", "k", "--", broken).want(t, exitNotFound)
		if !isFree(r, "k") {
			t.Error("the lock is kept though nothing has run")
		}
	})
}

func TestSignalsReachTheCommandOfExec(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGUSR1: 138, syscall.SIGHUP: 129} {
			s := w.start("k", "--", "sleep", "1000")
			awaitHeld(t, r, "k")
			eventually(t, 20*time.Second, "the command runs", func() bool { return childNamed(s.cmd.Process.Pid, "sleep") != 0 })
			s.Signal(sig)
			s.WantExit(code)
			if !isFree(r, "k") {
				t.Error("the lock is not free when exec has ended")
			}
		}
	})
}

// childNamed returns the child with that name, 0 if there is none.
func childNamed(parent int, name string) int {
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(parent), "-x", name).Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return pid
}

// TestManyExecsOfOneKeyNeverOverlap: some are killed, with or without their
// sidecar, and their workers are as stubborn as can be.
func TestManyExecsOfOneKeyNeverOverlap(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	j := newJournal(t)
	var ways []way
	for i := range 2 {
		ways = append(ways, throughSidecar(t, r.Addr(), fmt.Sprintf("HOLDER=sidecar-%d", i)), withoutSidecar(t, r.Addr(), fmt.Sprintf("HOLDER=direct-%d", i)))
	}
	began := locker.BootTime()
	for round := range 3 {
		var all []*started
		for i, w := range ways {
			for n := range 2 {
				all = append(all, w.startWorker(job{Journal: j.path, For: time.Duration(50+20*i) * time.Millisecond, Stubborn: n == 0}, "--ttl", "2s", "k"))
			}
		}
		if round > 0 {
			j.await("begins", 0)
			all[round].Signal(syscall.SIGKILL)
			all[round+4].Signal(syscall.SIGKILL)
		}
		for _, s := range all {
			select {
			case <-s.exited:
			case <-time.After(60 * time.Second):
				t.Fatal("an exec has not ended")
			}
		}
	}
	closest, shifts := j.wantNoOverlap()
	if len(shifts) < 20 {
		t.Errorf("only %d workers have worked", len(shifts))
	}
	t.Logf("%d workers in %v; the closest two were %v apart", len(shifts), locker.BootTime().Sub(began).Round(time.Millisecond), closest.Round(10*time.Microsecond))
}
