package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// round shortens a duration for the log of a test.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// TestAWorkerIsDeadBeforeAnotherHoldsItsLock: the store is cut off for one of
// two, and a worker that ignores TERM works on. The other stands in line.
func TestAWorkerIsDeadBeforeAnotherHoldsItsLock(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		proxy := faultproxy.Start(t, "tcp", r.Addr())
		w := make(t, proxy.Addr(), "HOLDER=victim")
		rival := make(t, r.Addr(), "HOLDER=rival")
		for _, ttl := range []time.Duration{3 * time.Second, 6 * time.Second} {
			j := newJournal(t)
			s := w.startWorker(job{Journal: j.path, Stubborn: true}, "--ttl", ttl.String(), "--kill-after", (ttl / 3).Truncate(time.Millisecond).String(), "k")
			victim := j.await("begins", 0)
			other := rival.startWorker(job{Journal: j.path, For: 50 * time.Millisecond}, "k")
			eventually(t, 20*time.Second, "the other is in line", func() bool { return places(r, "k") == 1 })
			cut := locker.BootTime()
			cutOff(proxy)
			term, dead := j.termed(victim.Pid), j.dead(victim.Pid)
			s.WantExit(exitLost, "not been renewed in time")
			ended := locker.BootTime()
			other.WantExit(0)
			closest, shifts := j.wantNoOverlap()
			if len(shifts) != 2 {
				t.Fatalf("%d workers have worked", len(shifts))
			}
			t.Logf("ttl %v: TERM %v after the cut, the last sign of life %v after that, the other began %v later; exec ended %v after the cut",
				ttl, round(term.Sub(cut)), round(shifts[0].until.Sub(term)), round(closest), round(ended.Sub(cut)))
			// A third, unless exec stood still when TERM was due.
			if worked := dead.Sub(term); worked < ttl/8 {
				t.Errorf("it was killed %v after TERM", worked)
			}
			heal(proxy)
			eventually(t, 20*time.Second, "the lock is free", func() bool { return isFree(r, "k") })
		}
	})
}

// TestAFrozenStoreStopsTheCommandBeforeTheLeaseEnds: nobody can have the lock
// meanwhile, but the store's clock goes on.
func TestAFrozenStoreStopsTheCommandBeforeTheLeaseEnds(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		const ttl = 3 * time.Second
		s := w.startWorker(job{Journal: j.path, Stubborn: true}, "--ttl", ttl.String(), "--kill-after", "1s", "k")
		worker := j.await("begins", 0)
		var until locker.Instant
		r.Stop()
		frozen := locker.BootTime()
		defer r.Cont()
		if w.sidecar != nil {
			// What was renewed just before is known by now.
			until = locker.Instant(w.sidecar.GET("k").Want(t, 200, "").JSON.ValidUntilMS * 1e6)
			j.await("TERM", worker.Pid)
			// So is now what the store had answered and the sidecar had not read.
			if a := w.sidecar.GET("k"); a.Status == http.StatusOK {
				until = locker.Instant(a.JSON.ValidUntilMS * 1e6)
			}
		}
		s.WantExit(exitLost, "not been renewed in time", "told to end", "killed")
		last := j.shifts()[0].until
		if last > frozen.Add(ttl) || !processGone(worker.Pid) {
			t.Errorf("it worked until %v after the store was frozen", last.Sub(frozen))
		}
		if until != 0 {
			if last >= until {
				t.Errorf("it worked until %v after the end of the lease", last.Sub(until))
			}
			t.Logf("the last sign of life was %v before the end of the lease", round(until.Sub(last)))
		}
	})
}

func TestAWorkerThatObeysHasTimeToTidyUp(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		s := w.startWorker(job{Journal: j.path, TidiesUp: 300 * time.Millisecond}, "--ttl", "6s", "--kill-after", "2s", "k")
		worker := j.await("begins", 0)
		r.Stop()
		defer r.Cont()
		s.WantExit(exitLost)
		if ends, found := j.first("ends", worker.Pid); !found || ends.At.Sub(j.await("TERM", worker.Pid).At) < 300*time.Millisecond {
			t.Error("it was killed")
		}
	})
}

func TestAStoreThatHiccupsStopsNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		s := w.startWorker(job{Journal: j.path, For: 12 * time.Second}, "--ttl", "6s", "k")
		worker := j.await("begins", 0)
		hiccup := func() {
			r.Do("CLIENT", "PAUSE", "2000", "ALL")
			eventually(t, 20*time.Second, "it works on", func() bool { return r.Do("PING") == "PONG" })
		}
		hiccup()
		// Between two that follow upon each other there is time for one request, and
		// whether one is on its way then is chance.
		eventually(t, 20*time.Second, "the lock is renewed after it", func() bool { return r.PTTL("lock:k") > 5*time.Second })
		hiccup()
		s.WantExit(0)
		if _, found := j.first("TERM", worker.Pid); found {
			t.Error("it was told to end")
		}
	})
}

func TestALockThatIsTakenAwayStopsTheCommand(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		for name, take := range map[string]func(){
			"vanished":      func() { r.Do("DEL", "lock:k") },
			"somebody else": func() { r.Do("SET", "lock:k", "another", "PX", "60000") },
		} {
			j := newJournal(t)
			s := w.startWorker(job{Journal: j.path}, "--ttl", "3s", "k")
			worker := j.await("begins", 0)
			took := locker.BootTime()
			if w.sidecar != nil {
				w.sidecar.record.storeLost("k")
			}
			take()
			s.WantExit(exitLost, name)
			term := j.await("TERM", worker.Pid)
			if after := term.At.Sub(took); after > 3*time.Second/3+unevenness {
				t.Errorf("%s: TERM came %v later", name, after)
			}
			r.Do("DEL", "lock:k") // another's
			eventually(t, 20*time.Second, "the lock is free", func() bool { return isFree(r, "k") })
		}
	})
}

// A pager that shows the first page reads no further.
func TestAnErrorOutputThatIsNotReadHoldsUpNoStop(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		screen, errs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer screen.Close()
		_ = errs.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := errs.WriteString(strings.Repeat("a full page\n", 1<<17)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("it is not full: %v", err)
		}
		s := w.startWorkerWith(errs, job{Journal: j.path}, "--ttl", "3s", "k")
		errs.Close()
		worker := j.await("begins", 0)
		if w.sidecar != nil {
			w.sidecar.record.storeLost("k")
		}
		r.Do("DEL", "lock:k")
		j.await("TERM", worker.Pid)
		var text strings.Builder
		_, _ = io.Copy(&text, screen)
		s.WantExit(exitLost)
		if !strings.Contains(text.String(), "vanished") {
			t.Error("it is not told in the end")
		}
	})
}

func TestAHoldThatIsOverStopsTheCommand(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		j := newJournal(t)
		s := w.startWorker(job{Journal: j.path, Stubborn: true}, "--ttl", "3s", "--max-hold", "6s", "k")
		s.WantExit(exitLost)
		shifts := j.shifts()
		// More than one lease, but for what its start has taken.
		if worked := shifts[0].until.Sub(shifts[0].from); worked > 6*time.Second || worked < 3500*time.Millisecond {
			t.Errorf("it worked for %v", worked)
		}
	})
}

func TestASidecarThatIsKilledStopsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, stubborn := range []bool{false, true} {
		w := throughSidecar(t, r.Addr(), "HOLDER=victim")
		rival := withoutSidecar(t, r.Addr(), "HOLDER=rival")
		j := newJournal(t)
		s := w.startWorker(job{Journal: j.path, Stubborn: stubborn}, "--ttl", "4s", "--kill-after", "1s", "k")
		worker := j.await("begins", 0)
		until := locker.Instant(w.sidecar.GET("k").Want(t, 200, "").JSON.ValidUntilMS * 1e6)
		killed := locker.BootTime()
		w.sidecar.Kill()
		term, dead := j.termed(worker.Pid), j.dead(worker.Pid)
		s.WantExit(exitLost, "nothing is heard")
		last := j.shifts()[0].until
		if stubborn && dead.Sub(term) < 900*time.Millisecond || last.Sub(killed) > 4*time.Second {
			t.Errorf("it was killed %v after TERM", dead.Sub(term))
		}
		t.Logf("TERM came %v after the sidecar was killed, the last sign of life %v after that", round(term.Sub(killed)), round(last.Sub(term)))
		if isFree(r, "k") && locker.BootTime() < until {
			t.Error("the lock is free although its lease is not over")
		}
		rival.startWorker(job{Journal: j.path, For: time.Millisecond}, "k").WantExit(0)
		j.wantNoOverlap()
	}
}

func TestASidecarThatDrainsStopsNothingAndOneThatEndsDoes(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, mode := range []string{"drop", "guarded", "release"} {
		w := throughSidecar(t, r.Addr(), "SHUTDOWN_MODE="+mode, "SHUTDOWN_GRACE=1s")
		j := newJournal(t)
		s := w.startWorker(job{Journal: j.path, TidiesUp: 100 * time.Millisecond}, "--ttl", "9s", "--kill-after", "3s", "k")
		worker := j.await("begins", 0)
		w.sidecar.Request("POST", "/drain").Want(t, 204, "")
		eventually(t, 20*time.Second, "the lock is renewed after the drain", func() bool {
			return r.PTTL("lock:k") > 8*time.Second && locker.BootTime() > worker.At.Add(3500*time.Millisecond)
		})
		if _, found := j.first("TERM", 0); found {
			t.Errorf("%s: a drain has stopped the command", mode)
		}
		w.sidecar.Signal(syscall.SIGTERM)
		s.WantExit(exitLost, "the sidecar is going")
		w.sidecar.WaitExit(20 * time.Second)
		if _, found := j.first("ends", worker.Pid); !found {
			t.Errorf("%s: the command had no time to tidy up", mode)
		}
		if mode == "drop" != isFree(r, "k") {
			t.Errorf("%s: free: %v", mode, isFree(r, "k"))
		}
		r.Do("DEL", "lock:k")
	}
}

// TestAKilledExecEndsItsCommandAndFreesTheLock: through a sidecar the lock is
// free at once; without one, at the end of its lease.
func TestAKilledExecEndsItsCommandAndFreesTheLock(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr(), "HOLDER=victim")
		rival := make(t, r.Addr(), "HOLDER=rival")
		j := newJournal(t)
		ttl := 3 * time.Second
		if w.sidecar != nil {
			ttl = 15 * time.Second // of which ten are left
		}
		s := w.startWorker(job{Journal: j.path, Stubborn: true}, "--ttl", ttl.String(), "k")
		worker := j.await("begins", 0)
		other := rival.startWorker(job{Journal: j.path, For: time.Millisecond}, "k")
		eventually(t, 20*time.Second, "the other is in line", func() bool { return places(r, "k") == 1 })
		killed := locker.BootTime()
		s.Signal(syscall.SIGKILL)
		other.WantExit(0)
		if !processGone(worker.Pid) {
			t.Error("the worker still runs")
		}
		_, shifts := j.wantNoOverlap()
		t.Logf("the worker's last sign of life came %v after the kill, the other began %v after it", round(shifts[0].until.Sub(killed)), round(shifts[1].from.Sub(killed)))
		if w.sidecar != nil && shifts[1].from.Sub(killed) > 7*time.Second {
			t.Error("the lock was not freed by the end of the connection")
		}
	})
}

// TestAnExecThatIsStoppedDoesNotLetItsCommandOutliveTheLease: what is told of
// renewals meanwhile comes too late.
func TestAnExecThatIsStoppedDoesNotLetItsCommandOutliveTheLease(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr(), "HOLDER=victim")
		rival := make(t, r.Addr(), "HOLDER=rival")
		j := newJournal(t)
		const ttl = 4 * time.Second
		s := w.startWorker(job{Journal: j.path, Stubborn: true}, "--ttl", ttl.String(), "k")
		worker := j.await("begins", 0)
		other := rival.startWorker(job{Journal: j.path, For: time.Millisecond}, "k")
		eventually(t, 20*time.Second, "the other is in line", func() bool { return places(r, "k") == 1 })
		stopped := locker.BootTime()
		s.Signal(syscall.SIGSTOP)
		eventually(t, 20*time.Second, "the worker is killed", func() bool { return processGone(worker.Pid) })
		t.Logf("the last sign of life came %v after exec was stopped", round(j.shifts()[0].until.Sub(stopped)))
		if j.shifts()[0].until > stopped.Add(ttl+atOnce) {
			t.Error("the worker outlived the lease")
		}
		s.Signal(syscall.SIGCONT)
		s.WantExit(exitLost, "not been renewed in time")
		other.WantExit(0)
		j.wantNoOverlap()
	})
}

// TestAnExecThatIsStoppedInLineStartsItsCommandOnlyUnderAValidLock: it is given
// the lock meanwhile, and the lease that it was told of first is long over.
func TestAnExecThatIsStoppedInLineStartsItsCommandOnlyUnderAValidLock(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"renewed meanwhile": false, "lost meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			w := throughSidecar(t, r.Addr())
			holder := withoutSidecar(t, r.Addr(), "HOLDER=another").start("k", "--", "sleep", "1000")
			awaitHeld(t, r, "k")
			s := w.start("--ttl", "2s", "k", "--", "echo", "it has run")
			eventually(t, 20*time.Second, "it is in line", func() bool { return places(r, "k") == 1 })
			s.Signal(syscall.SIGSTOP)
			holder.Signal(syscall.SIGTERM)
			holder.WantExit(143)
			eventually(t, 20*time.Second, "the lease has been over but for renewals", func() bool {
				a := w.sidecar.GET("k")
				return a.Status == 200 && a.JSON.State == "held" && a.JSON.Renewals >= 4
			})
			if lost {
				w.sidecar.Kill()
				eventually(t, 20*time.Second, "the lease is over", func() bool { return isFree(r, "k") })
			}
			s.Signal(syscall.SIGCONT)
			if !lost {
				s.WantExit(0, "it has run")
				return
			}
			s.WantExit(exitLost, "nothing is heard of the lock any more: the command is not started")
			if s.out.String() != "" {
				t.Error("the command was run")
			}
		})
	}
}

func TestACommandThatHadEndedBeforeItsLockWasLost(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr())
		// The next renewal, which would tell of the loss, is ten seconds away.
		s := w.start("k", "--", "sh", "-c", "while ! [ -e go ]; do sleep 0.01; done; exit 4")
		awaitHeld(t, r, "k")
		if w.sidecar != nil {
			w.sidecar.record.storeLost("k")
		}
		r.Do("DEL", "lock:k")
		touch(t, s.cmd.Dir+"/go")
		s.WantExit(exitLost, "vanished from the store, before the command had ended", "exit code was 4")

		// A release that is not confirmed says nothing of the work.
		s = w.start("k", "--", "sh", "-c", "while ! [ -e go ]; do sleep 0.01; done; exit 4")
		awaitHeld(t, r, "k")
		r.Stop()
		defer r.Cont()
		touch(t, s.cmd.Dir+"/go")
		s.WantExit(4, "not confirmed")
	})
}

// TestACrashBeforeTheLockWasLostIsToldByItsSignal: the lock is given back by
// somebody else while what the command has left behind is stopped, and ends.
func TestACrashBeforeTheLockWasLostIsToldByItsSignal(t *testing.T) {
	t.Parallel()
	w := throughSidecar(t, redistest.Start(t).Addr())
	s := w.start("--ttl", "60s", "--kill-after", "20s", "k", "--", "sh", "-c", `
		sh -c 'trap "n=x\$n; [ \$n != xx ] || exit 0" TERM; echo ready; while :; do sleep 0.01; done' |
		{ read ready; kill -SEGV $$; sleep 1000; }`)
	eventually(t, 20*time.Second, "the command has crashed", func() bool { return strings.Contains(s.errs.String(), "left processes behind") })
	fence := w.sidecar.GET("k").Want(t, 200, "held").JSON.Fence
	w.sidecar.DELETE("k", fmt.Sprintf("fencing_token=%d", fence)).Want(t, 204, "")
	s.WantExit(128+int(syscall.SIGSEGV), "somebody else has given it back, after the command had ended")
}

// TestTheRestOfAGroupEndsBeforeTheLockIsFree: a grandchild of exec works on
// after its parent has ended.
func TestTheRestOfAGroupEndsBeforeTheLockIsFree(t *testing.T) {
	eachWay(t, func(t *testing.T, make func(testing.TB, string, ...string) way) {
		r := redistest.Start(t)
		w := make(t, r.Addr(), "HOLDER=first")
		rival := make(t, r.Addr(), "HOLDER=rival")
		s := w.start("--kill-after", "500ms", "k", "--", "sh", "-c", `(trap "" TERM; while :; do sleep 0.01; done) & echo "left $!"`)
		eventually(t, 20*time.Second, "it is left behind", func() bool { return strings.Contains(s.out.String(), "left ") })
		var pid int
		if _, err := fmt.Sscanf(s.out.String(), "left %d", &pid); err != nil {
			t.Fatal(err)
		}
		rival.run("k", "--", "sh", "-c", fmt.Sprintf("kill -0 %d", pid)).want(t, 1)
		s.WantExit(0, "left processes behind")
	})
}
