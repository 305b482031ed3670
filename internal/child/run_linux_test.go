package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEveryExitCodeIsPassedOn(t *testing.T) {
	t.Parallel()
	s := how{}.start(t)
	for code := range 256 {
		s.Order(order{Run: []string{"sh", "-c", fmt.Sprintf("exit %d", code)}, ValidFor: time.Hour, KillAfter: second})
		s.WantResult(Result{Code: code})
	}
}

func TestACommandThatASignalEndsIs128AndItsNumber(t *testing.T) {
	t.Parallel()
	s := how{}.start(t)
	for _, sig := range []syscall.Signal{1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		s.Order(order{Run: []string{"sh", "-c", fmt.Sprintf("kill -%d $$", sig)}, ValidFor: time.Hour, KillAfter: second})
		s.WantResult(Result{Code: 128 + int(sig)})
	}
}

func TestACommandThatCannotBeStartedIs126Or127(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		syscall.ForkLock.RLock() // or a process that is being started elsewhere has it open, and it is busy
		err := os.WriteFile(path, []byte(text), mode)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := how{}.start(t)
	for name, want := range map[string]int{
		"no-such-command-anywhere":          127,
		"":                                  127,
		filepath.Join(dir, "absent"):        127,
		write("file", "#!/bin/sh\n", 0o644): 126,
		write("text", "echo no first line\n", 0o755):     126,
		write("lost", "#!/no/such/interpreter\n", 0o755): 127,
		dir: 126,
		write("in", "", 0o644) + "/a-file-is-no-folder/and-so-on": 127,
	} {
		s.Order(order{Run: []string{name}, ValidFor: time.Hour, KillAfter: second})
		r, _ := s.Result()
		if r.Code != want {
			t.Errorf("%q: code %d, want %d: %s", name, r.Code, want, r.Error)
		}
		if !strings.Contains(r.Error, fmt.Sprintf("%q", name)) {
			t.Errorf("%q is not named: %s", name, r.Error)
		}
	}
}

func TestAProgramIsFoundAsAShellFindsIt(t *testing.T) {
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{"a/tool": 0o644, "b/tool": 0o755, "c/tool": 0o755, "a/only": 0o644} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", strings.Join([]string{dir + "/a", dir + "/nothing", dir + "/b", dir + "/c"}, ":"))
	if got, err := Find("tool"); got != dir+"/b/tool" || err != nil {
		t.Errorf("the first that can be run: %s, %v", got, err)
	}
	if _, err := Find("only"); err == nil || err.(*StartError).Code != CodeNotExecutable {
		t.Errorf("one that cannot be run: %v", err)
	}
	t.Chdir(dir + "/b")
	t.Setenv("PATH", "")
	if _, err := Find("tool"); err == nil {
		t.Error("nothing is in an empty PATH")
	}
	t.Setenv("PATH", ":")
	if got, err := Find("tool"); got != "./tool" || err != nil {
		t.Errorf("an empty element is the working directory: %s, %v", got, err)
	}
}

func TestInputOutputAndFilesPassThrough(t *testing.T) {
	t.Parallel()
	in, feed := pipe(t)
	if _, err := feed.WriteString("from the caller\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	s := how{Stdin: in}.run(t, order{
		Run:      []string{"sh", "-c", `cat; echo "$0 $*"; exec ls /proc/self/fd`, "name", "a b", "$c", "*"},
		ValidFor: time.Hour, KillAfter: second,
	})
	s.WantResult(Result{})
	got := s.Rest()
	if len(got) < 2 || got[0] != "from the caller" || got[1] != "name a b $c *" {
		t.Fatalf("the command wrote %q", got)
	}
	without, err := exec.Command("ls", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields(string(without)); !slices.Equal(got[2:], want) {
		t.Errorf("the command has the files %q, want those that it has without us: %q", got[2:], want)
	}
}

// script is a shell script that writes down the signals that it gets.
func script(signals string) string {
	return `for s in ` + signals + `; do trap "echo got $s" $s; done; echo ready $$; while :; do sleep 0.01; done`
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", script("TERM INT HUP QUIT USR1 USR2 WINCH"))
	s.Out.pidIn(t, "ready")
	for _, tt := range []struct {
		sig  syscall.Signal
		name string
	}{
		{syscall.SIGTERM, "TERM"}, {syscall.SIGINT, "INT"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGQUIT, "QUIT"},
		{syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}, {syscall.SIGWINCH, "WINCH"}, {syscall.SIGTERM, "TERM"},
	} {
		s.Signal(tt.sig)
		if got := s.Out.Next(t); got != "got "+tt.name {
			t.Fatalf("%v: the command %s", tt.sig, got)
		}
	}
}

func TestTheCommandIsStoppedAndGoesOnAsWeAreTold(t *testing.T) {
	t.Parallel()
	// Not a shell that starts something again and again: while what it starts has
	// not begun yet, the shell waits in vfork, and is stopped only once it has, which
	// it cannot if it was stopped itself.
	s := supervised(t, "sh", "-c", `echo ready $$; exec sleep 1000`)
	pid := s.Out.pidIn(t, "ready")
	eventually(t, "it is the shell no more", func() bool { return nameOf(pid) == "sleep" })
	s.Signal(syscall.SIGTSTP)
	eventually(t, "the command is stopped", func() bool { return stateOf(pid) == "T" })
	s.Signal(syscall.SIGCONT)
	eventually(t, "the command goes on", func() bool { return stateOf(pid) != "T" })
	s.Signal(syscall.SIGTERM)
	s.WantResult(Result{Code: 143})
}

// stateOf returns the letter that /proc shows for the process.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])[0]
}

func TestOnlyTheCommandItselfGetsSignalsThatEndTheUnprepared(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", `trap "echo got USR1" USR1; trap "echo got TERM" TERM; sleep 1000 & echo sleeps $!; while :; do wait; sleep 0.01; done`)
	sleeps := s.Out.pidIn(t, "sleeps")
	eventually(t, "it is not a copy of the shell any more, which would hear TERM", func() bool { return nameOf(sleeps) == "sleep" })
	s.Signal(syscall.SIGUSR1)
	if got := s.Out.Next(t); got != "got USR1" || gone(sleeps) {
		t.Fatalf("after USR1: %s, and what it has started has ended: %v", got, gone(sleeps))
	}
	s.Signal(syscall.SIGTERM)
	if got := s.Out.Next(t); got != "got TERM" {
		t.Fatalf("after TERM: %s", got)
	}
	eventually(t, "TERM reaches the whole group", func() bool { return gone(sleeps) })
}

func TestASignalThatWasIgnoredStaysIgnored(t *testing.T) {
	t.Parallel()
	s := how{Wrap: []string{"sh", "-c", `trap "" HUP; exec "$0"`}}.run(t, order{
		Run: []string{"sh", "-c", "kill -HUP $$; echo alive; kill -HUP $PPID; sleep 0.1; echo alive"}, ValidFor: time.Hour, KillAfter: second,
	})
	s.WantResult(Result{})
	if got := s.Rest(); len(got) != 2 {
		t.Errorf("the command wrote %q", got)
	}
}
