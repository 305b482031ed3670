package child

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// puppet is a command whose processes do what a test wants. All of it lives in
// the bubble of the test, in virtual time.
type puppet struct {
	t       *testing.T
	began   time.Time
	changes chan change

	ends    time.Duration // by itself, after so long; 0: never
	obeys   time.Duration // it ends so long after TERM; below 0: never
	members bool          // of its group, beside itself
	strays  bool

	mu    sync.Mutex
	log   []string // what it was sent, and when
	ended bool
}

func (p *puppet) signal(sig syscall.Signal, to recipients) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sig != syscall.SIGCONT {
		p.log = append(p.log, fmt.Sprintf("%v %v to %v", time.Since(p.began), sig, to))
	}
	switch {
	case sig == syscall.SIGKILL:
		p.members = false
		p.strays = p.strays && to != everyone
		p.endLocked()
	case sig == syscall.SIGTERM && p.obeys >= 0 && !p.ended:
		time.AfterFunc(p.obeys, p.end)
	}
	return nil
}

func (p *puppet) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked()
}

func (p *puppet) endLocked() {
	if !p.ended {
		p.ended = true
		p.changes <- change{ended: true}
	}
}

func (p *puppet) alive(of recipients) bool { return p.members || of == everyone && p.strays }

func (r recipients) String() string { return [...]string{"it", "its group", "all"}[r] }

// play runs the loop over a puppet until it returns, while the test tells news.
func play(t *testing.T, p *puppet, killAfter, lease time.Duration, tell func(news chan<- News)) *run {
	t.Helper()
	p.t, p.began, p.changes = t, time.Now(), make(chan change, 8)
	now := func() locker.Instant { return at(time.Since(p.began)) }
	news := make(chan News)
	rings := make(chan struct{}, 1)
	timer := time.AfterFunc(time.Hour, func() {
		select {
		case rings <- struct{}{}:
		default:
		}
	})
	defer timer.Stop()
	r := &run{
		guard: guard{killAfter: killAfter, until: at(lease)}, command: p, changes: p.changes, news: news,
		signals: make(chan os.Signal), job: &job{}, say: t.Logf, now: now, rings: rings,
		setAlarm: func(at locker.Instant) error { timer.Reset(at.Sub(now())); return nil },
		order:    func(locker.Instant) {},
	}
	if tell != nil {
		go tell(news)
	}
	if p.ends > 0 {
		time.AfterFunc(p.ends, p.end)
	}
	if err := r.loop(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *puppet) want(log ...string) {
	p.t.Helper()
	if !slices.Equal(p.log, log) {
		p.t.Errorf("the command was sent %q, want %q", p.log, log)
	}
}

func TestALeaseThatIsNotRenewedStopsTheCommandBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{obeys: -1, members: true, strays: true}
		r := play(t, p, 5*second, 30*second, nil)
		p.want("25s terminated to all", "29.95s killed to all")
		if took := time.Since(p.began); took > 29960*ms {
			t.Errorf("all were gone at %v", took)
		}
		if r.guard.reason != overdue || !r.told {
			t.Errorf("the reason is %q", r.guard.reason)
		}
	})
}

func TestACommandThatObeysIsNotKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{obeys: 2 * second}
		play(t, p, 5*second, 30*second, nil)
		p.want("25s terminated to all")
		if took := time.Since(p.began); took != 27*second {
			t.Errorf("it returned after %v", took)
		}
	})
}

func TestRenewalsPostponeTheStopForAsLongAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{obeys: 0}
		play(t, p, 5*second, 30*second, func(news chan<- News) {
			for i := range 100 {
				time.Sleep(10 * second)
				news <- News{ValidUntil: at(time.Duration(i+1)*10*second + 30*second)}
			}
		})
		p.want("17m5s terminated to all")
	})
}

func TestTheEndOfTheNewsIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{obeys: -1}
		play(t, p, 5*second, 30*second, func(news chan<- News) {
			time.Sleep(second)
			close(news)
		})
		p.want("1s terminated to all", "6s killed to all")
	})
}

func TestACommandThatEndsByItselfIsSentNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{ends: 7 * second, strays: true} // daemons of its own
		r := play(t, p, 5*second, 30*second, nil)
		p.want()
		if time.Since(p.began) != 7*second || r.guard.reason != "" {
			t.Errorf("it returned after %v, stopped because %q", time.Since(p.began), r.guard.reason)
		}
	})
}

func TestWhatACommandLeavesBehindIsGivenKillAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{ends: 7 * second, members: true, strays: true}
		r := play(t, p, 5*second, 30*second, nil)
		p.want("7s terminated to its group", "12s killed to its group")
		if r.guard.reason != "" || !p.strays {
			t.Errorf("stopped because %q", r.guard.reason)
		}
	})
}

func TestALossWhileTheRestIsStoppedConcernsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{ends: 7 * second, members: true, strays: true}
		r := play(t, p, 5*second, 30*second, func(news chan<- News) {
			time.Sleep(8 * second)
			news <- News{Lost: "taken"}
		})
		p.want("7s terminated to its group", "8s terminated to all", "12s killed to all")
		for status, code := range map[syscall.WaitStatus]int{3 << 8: 3, syscall.WaitStatus(syscall.SIGSEGV): 139, syscall.WaitStatus(syscall.SIGKILL): 137} {
			if got := r.result(status); got != (Result{Code: code, LostSince: "taken"}) {
				t.Errorf("a command that had ended before, with %#x: %+v", status, got)
			}
		}
	})
}

func TestACommandThatWasStoppedIsToldFromOneThatWasSooner(t *testing.T) {
	const segv, killed, exit3 = syscall.WaitStatus(syscall.SIGSEGV), syscall.WaitStatus(syscall.SIGKILL), syscall.WaitStatus(3 << 8)
	for _, tt := range []struct {
		name      string
		killAfter time.Duration
		status    syscall.WaitStatus
		want      Result
	}{
		{"killed", 0, killed, Result{Code: 137, Stopped: overdue}},
		{"exited just before its KILL", 0, exit3, Result{Code: 3}},
		{"crashed just before its KILL", 0, segv, Result{Code: 139}},
		{"told to end, and exited", 5 * second, exit3, Result{Code: 3, Stopped: overdue}},
		{"told to end, and crashed", 5 * second, segv, Result{Code: 139, Stopped: overdue}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, &puppet{obeys: 0}, tt.killAfter, 30*second, nil)
				if got := r.result(tt.status); got != tt.want {
					t.Errorf("it is %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

func TestACommandIsNotStartedUnderALeaseThatIsOver(t *testing.T) {
	fresh := News{ValidUntil: at(time.Minute)}
	for _, tt := range []struct {
		name  string
		lease time.Duration
		news  []News
		close bool
		why   string // empty if it is started
		after time.Duration
	}{
		{name: "valid", lease: 6 * second},
		{name: "told to end by now", lease: 5 * second, why: overdue, after: newsWithin},
		{name: "over", lease: -second, why: overdue, after: newsWithin},
		{name: "renewed meanwhile", lease: -20 * second, news: []News{{ValidUntil: at(-10 * second)}, {ValidUntil: at(4 * second)}, fresh}},
		{name: "not renewed for long enough", lease: -20 * second, news: []News{{ValidUntil: at(-10 * second)}, {ValidUntil: at(4 * second)}}, why: overdue, after: newsWithin},
		{name: "lost meanwhile", lease: -20 * second, news: []News{{ValidUntil: at(-10 * second)}, {Lost: "taken"}, fresh}, why: "taken"},
		{name: "nothing more", lease: -second, news: []News{{ValidUntil: at(-second)}}, close: true, why: silent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				news := make(chan News, len(tt.news))
				for _, n := range tt.news {
					news <- n
				}
				if tt.close {
					close(news)
				}
				began := time.Now()
				g := guard{killAfter: 5 * second, until: at(tt.lease)}
				err := g.catchUp(news, func() locker.Instant { return at(time.Since(began)) })
				why := ""
				if lost, ok := err.(*LostError); ok {
					why = lost.Why
				}
				if why != tt.why || (err == nil) != (why == "") || time.Since(began) != tt.after {
					t.Errorf("after %v: %v, want %q after %v", time.Since(began), err, tt.why, tt.after)
				}
				if err == nil && g.due(at(0)) != nothing {
					t.Error("it is started, to be told to end at once")
				}
			})
		})
	}
}
