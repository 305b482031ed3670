package child

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// stubborn is a command that ignores TERM, and so do a child and a grandchild
// in its group, one that has left it for a session of its own, and one whose
// parents have ended. It tells the numbers of all five.
const stubborn = `trap "" TERM INT HUP
sh -c 'sleep 1000 & echo $!; wait' &
setsid sh -c 'echo $$; sleep 1000; true' &
sh -c '(setsid sleep 1000 & echo $!)'
echo $! $$
while :; do sleep 0.05; done`

// startsAll reads the numbers that stubborn tells, in whatever order.
func startsAll(t *testing.T, s *supervisor) (pids []int) {
	t.Helper()
	for range 4 {
		for field := range strings.FieldsSeq(s.Out.Next(t)) {
			pids = append(pids, atoi(t, field))
		}
	}
	if len(pids) != 5 {
		t.Fatalf("the processes are %v", pids)
	}
	return pids
}

func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestNothingSurvivesTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{Run: []string{"sh", "-c", stubborn}, ValidFor: 6 * second, KillAfter: 3 * second})
	pids := startsAll(t, s)
	r, said := s.Result()
	wantGone(t, pids...)
	if r.Result == nil || *r.Result != (Result{Code: 137, Stopped: overdue}) {
		t.Errorf("the result is %+v %s", r.Result, r.Error)
	}
	if r.Left > 100*ms {
		t.Errorf("it was killed %v before the end of the lease", r.Left)
	}
	if !strings.Contains(said, "told to end") || !strings.Contains(said, "killed") {
		t.Errorf("it was said: %s", said)
	}
	t.Logf("all were gone %v before the lease was over", r.Left.Round(100*time.Microsecond))
}

func TestTERMComesFirstAndLeavesTimeToTidyUp(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{
		Run:      []string{"sh", "-c", `trap "sleep 0.2; echo tidied up; exit 3" TERM; echo ready; while :; do sleep 0.01; done`},
		ValidFor: 15 * second, KillAfter: 11 * second,
	})
	s.Out.Next(t)
	if got := s.Out.Next(t); got != "tidied up" {
		t.Fatalf("the command wrote %q", got)
	}
	s.WantResult(Result{Code: 3, Stopped: overdue})
}

func TestRenewalsKeepTheCommandRunning(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{
		Run:      []string{"sh", "-c", `trap "exit 3" TERM; echo ready; sleep 5 & wait $!; exit 5`},
		ValidFor: 4 * second, KillAfter: 300 * ms,
	})
	s.Out.Next(t)
	s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Minute)}})
	s.WantResult(Result{Code: 5})
}

func TestALossStopsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	for name, news := range map[string]order{
		"told":         {News: &News{Lost: "taken"}},
		"nothing more": {Close: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := how{}.run(t, order{Run: []string{"sh", "-c", stubborn}, ValidFor: time.Hour, KillAfter: second})
			pids := startsAll(t, s)
			told := locker.BootTime()
			s.Order(news)
			r, _ := s.Result()
			wantGone(t, pids...)
			if r.Result == nil || r.Result.Code != 137 || r.Result.Stopped == "" {
				t.Errorf("the result is %+v %s", r.Result, r.Error)
			}
			if took := locker.BootTime().Sub(told); took < 800*ms {
				t.Errorf("it was killed %v after the loss", took)
			}
		})
	}
}

func TestAStoppedCommandHearsTERM(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{Run: []string{"sh", "-c", `trap "exit 9" TERM; echo ready $$; while :; do sleep 0.01; done`}, ValidFor: time.Hour, KillAfter: time.Minute})
	pid := s.Out.pidIn(t, "ready")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is stopped", func() bool { return stateOf(pid) == "T" })
	s.Order(order{News: &News{Lost: "gone"}})
	s.WantResult(Result{Code: 9, Stopped: "gone"})
}

func TestWhatTheCommandLeavesInItsGroupEndsBeforeTheLock(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{
		Run: []string{"sh", "-c", `
			trap "exit 7" USR1
			sh -c 'trap "" TERM; echo ready; while :; do sleep 0.05; done' & echo $!
			sh -c 'trap "echo polite; exit" TERM; echo ready; while :; do sleep 0.01; done' & echo $!
			setsid sh -c 'echo $$; exec sleep 1000' & while :; do sleep 0.01; done`},
		ValidFor: time.Hour, KillAfter: second,
	})
	var pids []int
	for range 5 {
		if line := s.Out.Next(t); line != "ready" {
			pids = append(pids, atoi(t, line))
		}
	}
	s.Signal(syscall.SIGUSR1)
	s.WantResult(Result{Code: 7})
	var left int
	for _, pid := range pids {
		if !gone(pid) {
			left++
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if left != 1 {
		t.Errorf("%d processes are left, want the one that has left the group", left)
	}
	if rest := s.Rest(); len(rest) == 0 || rest[len(rest)-1] != "polite" {
		t.Errorf("they wrote %q", rest)
	}
}

func TestAKillOfTheSupervisorEndsTheCommandAndItsGroup(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", `trap "" TERM HUP; trap "echo heard" USR1; sh -c 'sleep 1000; true' & echo $!; echo $$; while :; do sleep 0.05; done`)
	pids := []int{atoi(t, s.Out.Next(t)), atoi(t, s.Out.Next(t))}
	// The warden is told of the command as soon as it has been started, and
	// before any signal is passed on.
	s.Signal(syscall.SIGUSR1)
	s.Out.Next(t)
	began := locker.BootTime()
	s.Signal(syscall.SIGKILL)
	eventually(t, "the command and its child have ended", func() bool { return gone(pids[0]) && gone(pids[1]) })
	t.Logf("both were gone %v after the kill", locker.BootTime().Sub(began).Round(10*time.Microsecond))
	s.Out.End(t)
}

// wardenOf returns the number of the supervisor's warden, once there is one.
func wardenOf(s *supervisor) (pid int) {
	s.t.Helper()
	eventually(s.t, "there is a warden", func() bool {
		all, _ := processes()
		for _, p := range all {
			if p.parent == s.Pid() && nameOf(p.pid) == wardenName {
				pid = p.pid
			}
		}
		return pid != 0
	})
	return pid
}

// TestAWardenHarmsNobodyElse: once the master has ended, its number may be
// another's, and its children are among those of process 1. The numbers 0, 1
// and -1 would mean our own group, or everybody. What would be harmed is not
// put to the test.
func TestAWardenHarmsNobodyElse(t *testing.T) {
	for _, tt := range []struct {
		i      instruction
		parent int
		group  bool
		others bool
	}{
		{instruction{Group: 7, Master: 5}, 5, true, true},
		{instruction{Group: 7, Master: 5}, 1, true, false},
		{instruction{Group: 7, Master: 1}, 1, true, false},
		{instruction{Group: 7, Master: 0}, 5, true, false},
		{instruction{Group: 7, Master: 0}, 0, true, false},
		{instruction{Master: 5}, 5, false, true},
		{instruction{Master: 5}, 1, false, false},
		{instruction{}, 5, false, false},
		{instruction{}, 0, false, false},
		{instruction{Group: 1, Master: 5}, 5, false, true},
		{instruction{Group: -1, Master: 5}, 5, false, true},
	} {
		if group, others := tt.i.concerns(tt.parent); group != tt.group || others != tt.others {
			t.Errorf("%+v with the parent %d: group %v, others %v", tt.i, tt.parent, group, others)
		}
	}
}

func TestChildrenOfAProgramThatWasReplacedAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := how{Wrap: []string{"sh", "-c", `sleep 1000 & echo $!; exec "$0"`}}.run(t, order{
		Run: []string{"sh", "-c", stubborn}, ValidFor: time.Hour, KillAfter: 100 * ms,
	})
	bystander := atoi(t, s.Out.Next(t))
	pids := startsAll(t, s)
	s.Order(order{News: &News{Lost: "taken"}})
	s.WantResult(Result{Code: 137, Stopped: "taken"})
	wantGone(t, pids...)
	if gone(bystander) {
		t.Error("it was killed")
	}
	_ = syscall.Kill(bystander, syscall.SIGKILL)
}

func TestTheKernelKillsTheCommandEvenWithoutTheWarden(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", "trap '' TERM HUP; echo $$; while :; do sleep 0.05; done")
	pid := atoi(t, s.Out.Next(t))
	warden := wardenOf(s)
	if err := syscall.Kill(warden, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warden has been reaped", func() bool { _, found := readProcess(warden); return !found })
	s.Signal(syscall.SIGKILL)
	eventually(t, "the command has ended", func() bool { return gone(pid) })
}

func TestACommandOutlivesItsWarden(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", "trap 'sleep 0.5; exit 4' USR1; echo; while :; do sleep 0.01; done")
	s.Out.Next(t)
	if err := syscall.Kill(wardenOf(s), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Hour)}}) // tells nobody
	s.Signal(syscall.SIGUSR1)
	s.WantResult(Result{Code: 4})
}

// TestAWardenThatWasStoppedHearsWhatItWasToldMeanwhile: the alarm that it had
// set has rung by then, and the lease has been renewed.
func TestAWardenThatWasStoppedHearsWhatItWasToldMeanwhile(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", "trap 'echo heard' USR1; echo; while :; do sleep 0.02; done")
	s.Out.Next(t)
	warden := wardenOf(s)
	for range 3 {
		soon := locker.BootTime().Add(3 * second)
		s.Order(order{News: &News{ValidUntil: soon}})
		s.Signal(syscall.SIGUSR1)
		s.Out.Next(t)
		if err := syscall.Kill(warden, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Hour)}})
		eventually(t, "the lease that it knew of is over", func() bool { return locker.BootTime() > soon })
		if err := syscall.Kill(warden, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.Signal(syscall.SIGUSR1)
		s.Out.Next(t)
	}
	if now := wardenOf(s); now != warden {
		t.Errorf("the warden is process %d, want %d", now, warden)
	}
	s.Signal(syscall.SIGTERM)
	s.WantResult(Result{Code: 143})
}

// TestASupervisorThatIsStoppedAsItStartsTheCommand: the warden knows the end of
// the lease before there is a command, and finds it by its parent.
func TestASupervisorThatIsStoppedAsItStartsTheCommand(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := how{Wrap: []string{"env", "GOMAXPROCS=1"}}.run(t, order{Run: []string{"sh", "-c", `kill -STOP $PPID; echo $$; while :; do sleep 0.05; done`}, ValidFor: 3 * second, KillAfter: 100 * ms})
		pid := atoi(t, s.Out.Next(t))
		eventually(t, "the command is killed", func() bool { return gone(pid) })
		s.Signal(syscall.SIGCONT)
		s.WantResult(Result{Code: 137, Stopped: overdue})
	}
}

func TestTheWardenGoesWithTheCommandEvenIfItIsStopped(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", "trap exit USR1; echo; while :; do sleep 0.01; done")
	s.Out.Next(t)
	warden := wardenOf(s)
	if err := syscall.Kill(warden, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGUSR1)
	s.WantResult(Result{})
	if _, found := readProcess(warden); found {
		t.Error("the warden is left")
	}
}

func TestASupervisorThatIsStoppedDoesNotLetTheCommandOutliveTheLease(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{Run: []string{"sh", "-c", stubborn}, ValidFor: 4 * second, KillAfter: 500 * ms})
	pids := startsAll(t, s)
	s.Signal(syscall.SIGSTOP)
	for _, pid := range pids {
		eventually(t, "the processes are killed", func() bool { return gone(pid) })
	}
	s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Hour)}}) // too late
	s.Signal(syscall.SIGCONT)
	s.WantResult(Result{Code: 137, Stopped: overdue})
}

func TestACommandThatEndsWhileItsSupervisorIsStoppedHasEndedByItself(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{Run: []string{"sh", "-c", "echo $$; sleep 0.2; exit 6"}, ValidFor: 3 * second, KillAfter: 100 * ms})
	pid := atoi(t, s.Out.Next(t))
	over := locker.BootTime().Add(3 * second)
	s.Signal(syscall.SIGSTOP)
	eventually(t, "the lease is over", func() bool { return gone(pid) && locker.BootTime() > over })
	s.Signal(syscall.SIGCONT)
	s.WantResult(Result{Code: 6})
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	s := supervised(t, "sh", "-c", `for i in 1 2 3; do sh -c 'sleep 0.05 & setsid sleep 0.05 & echo $!'; done; echo ready; sleep 1000`)
	for range 3 {
		s.Out.Next(t)
	}
	s.Out.Next(t)
	eventually(t, "the command and the warden are the only children", func() bool {
		all, _ := processes()
		n := 0
		for _, p := range all {
			if p.parent == s.Pid() {
				n++
			}
		}
		return n == 2
	})
	s.Signal(syscall.SIGTERM)
	s.WantResult(Result{Code: 143})
}

func TestAsProcessOneItReapsAndPassesSignalsOn(t *testing.T) {
	t.Parallel()
	if syscall.Getuid() != 0 {
		t.Skip("only root may make a process namespace here")
	}
	// With --fork, unshare stays outside; its child is process 1.
	s := how{Wrap: []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}}.run(t, order{
		Run: []string{"sh", "-c", `
			sh -c 'sleep 0.05 & sleep 0.05 & echo $!'
			trap "echo got TERM; exit 3" TERM
			echo "$PPID $(ls -d /proc/[0-9]* | wc -l)"
			while grep -qs 'State:.Z' /proc/[0-9]*/status || [ $(cat /proc/[0-9]*/status 2>/dev/null | grep -c '^PPid:.1$') != 1 ]; do sleep 0.01; done
			echo ready; while :; do sleep 0.01; done`},
		ValidFor: time.Hour, KillAfter: second,
	})
	s.Out.Next(t)
	if got := s.Out.Next(t); !strings.HasPrefix(got, "1 ") {
		t.Fatalf("the command's parent is not process 1: %s", got)
	}
	if got := s.Out.Next(t); got != "ready" {
		t.Fatalf("the command wrote %q", got)
	}
	all, _ := processes()
	inside := descendants(all, s.Pid())
	if len(inside) == 0 || inside[0].parent != s.Pid() {
		t.Fatal("process 1 is not found from outside")
	}
	if err := syscall.Kill(inside[0].pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := s.Out.Next(t); got != "got TERM" {
		t.Fatalf("the command wrote %q", got)
	}
	s.WantResult(Result{Code: 3})
}

// TestAfterAStopTheKILLComesFirst: process 1 has no warden, and only those
// outside its namespace can stop it. Its /proc is that of the outer namespace,
// where its numbers are others': it must not look there for processes to kill.
func TestAfterAStopTheKILLComesFirst(t *testing.T) {
	t.Parallel()
	if syscall.Getuid() != 0 {
		t.Skip("only root may make a process namespace here")
	}
	s := how{Wrap: []string{"unshare", "--pid", "--fork", "--kill-child"}}.run(t, order{
		Run:      []string{"sh", "-c", `trap "echo got TERM" TERM; echo ready; while :; do sleep 0.01; done`},
		ValidFor: 4 * second, KillAfter: 500 * ms,
	})
	s.Out.Next(t)
	over := locker.BootTime().Add(4 * second)
	all, _ := processes()
	one := descendants(all, s.Pid())[0].pid
	if err := syscall.Kill(one, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Hour)}}) // it is not read in time
	eventually(t, "the lease is over", func() bool { return locker.BootTime() > over })
	if err := syscall.Kill(one, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.WantResult(Result{Code: 137, Stopped: overdue})
	if rest := s.Rest(); len(rest) != 0 {
		t.Errorf("the command wrote %q", rest)
	}
}

func TestACrashBeforeTheLossIsTheCommandsOwn(t *testing.T) {
	t.Parallel()
	s := how{}.run(t, order{
		Run:      []string{"sh", "-c", `sh -c 'trap "" TERM; echo ready; while :; do sleep 0.05; done' | { read ready; kill -SEGV $$; sleep 1000; }`},
		ValidFor: time.Hour, KillAfter: 5 * second,
	})
	s.WantSaid("left processes behind")
	s.Order(order{News: &News{Lost: "taken"}})
	s.WantResult(Result{Code: 128 + int(syscall.SIGSEGV), LostSince: "taken"})
}

func TestUnderALeaseThatIsOverNothingIsStarted(t *testing.T) {
	t.Parallel()
	over := order{Run: []string{"echo", "it has run"}, ValidFor: -second, KillAfter: second}
	s := how{}.run(t, over)
	r, _ := s.Result()
	if want := (&LostError{overdue}).Error(); r.Error != want {
		t.Errorf("the result is %+v, error %q, want %q", r.Result, r.Error, want)
	}
	if got := s.Rest(); len(got) > 0 {
		t.Errorf("the command wrote %q", got)
	}

	s = how{}.run(t, over)
	s.Order(order{News: &News{ValidUntil: locker.BootTime().Add(time.Hour)}})
	s.WantResult(Result{})
	if got := s.Rest(); len(got) != 1 {
		t.Errorf("the command, whose lease was renewed, wrote %q", got)
	}
}
