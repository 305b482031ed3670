package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const testGuard = 3 * time.Second

// guarded are settings with a guard and leases that it allows.
func guarded(more ...string) []string {
	return append([]string{"REDIS_RESTART_GUARD=" + testGuard.String(), "DEFAULT_TTL=1500ms"}, more...)
}

// awaitReady returns once the sidecar grants locks.
func (p *proc) awaitReady() {
	p.t.Helper()
	eventually(p.t, 20*time.Second, "the sidecar is ready", func() bool {
		status, _ := p.Ready()
		return status == http.StatusOK
	})
}

// awaitRefusal asks for the lock until it is refused with that code, for a store
// that does so from now on; it returns that answer. Before, there may be other
// 503: connections that have ended are found so, and what is slow is not
// understood.
func (p *proc) awaitRefusal(key, code string) (a answer) {
	p.t.Helper()
	eventually(p.t, 10*time.Second, key+" is refused: "+code, func() bool {
		a = p.POST(key)
		if a.Status != http.StatusServiceUnavailable {
			p.t.Fatalf("the answer is %v; want 503 %s", a, code)
		}
		return a.JSON.Code == code
	})
	return a
}

// What a server has forgotten is granted to nobody while somebody may count on
// it: the record finds two holders if it is.
func TestAServerThatMayHaveLostItsDataIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"started again empty": (*redistest.Server).Restart,
		"flushed":             func(r *redistest.Server) { r.Do("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			s2 := on(t, r, guarded()...)
			// It is new to us, and might have been somebody's.
			s2.awaitRefusal("k", "store_recovering")
			if status, text := s2.Ready(); status != 503 || !strings.Contains(text, "recovering") {
				t.Errorf("/readyz is %d %s", status, text)
			}
			s2.AwaitLog("the store may have lost its data: it grants no new lock for a while")
			s1 := on(t, r, guarded()...)
			s1.awaitReady()
			s2.awaitReady()
			s2.AwaitLog("the store grants locks again")

			h := s1.POST("k", "ttl=3s").Finally(t, 201, "held")
			lose(r)
			s2.awaitRefusal("free", "store_recovering")
			waiter := s2.ask("free", "wait=20s")
			if a := <-waiter; !a.Is(503, "store_recovering") {
				t.Errorf("a waiter at a store that recovers: %v, want store_recovering at once", a)
			}
			s1.awaitLost("k", 5*time.Second, locker.CauseGone)
			var next answer
			eventually(t, 20*time.Second, "the lock is granted again", func() bool {
				next = s2.POST("k")
				return next.Status == http.StatusCreated
			})
			wantFenceAbove(t, next, h)
			if n := s2.Metric(`locksidecar_store_errors_total{reason="recovering"}`); n == 0 {
				t.Error("no refusal is counted")
			}
		})
	}
}

// That is what the guard is for: without it, a majority that has forgotten a lock
// grants it while its holder counts on it. The fencing tokens tell them apart.
func TestWithoutTheGuardAMajorityThatForgetsGrantsALockThatIsHeld(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	s1, s2 := m.on(t), m.on(t)
	recordOf(t).storeLost("k")
	h := s1.POST("k", "ttl=30s").Finally(t, 201, "held")
	m[0].Restart()
	m[1].Restart()
	var second answer
	eventually(t, 9*time.Second, "another is granted it", func() bool { // before the first one is renewed
		second = s2.POST("k", "ttl=30s")
		return second.Status == http.StatusCreated
	})
	s1.GET("k").Want(t, 200, "")
	if second.Got.Milliseconds() >= h.JSON.ValidUntilMS {
		t.Error("the first lease was over by then: nothing is shown")
	}
	wantFenceAbove(t, second, h)
}

func TestRollingRestartsOfEmptyServersUnderAHeldLock(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	s1, s2 := m.on(t, guarded()...), m.on(t, guarded()...)
	h := s1.POST("k", "ttl=3s").Finally(t, 201, "held")
	stop := make(chan struct{})
	contended := make(chan int)
	go func() { // somebody else wants it all the time
		refused := 0
		for {
			select {
			case <-stop:
				contended <- refused
				return
			default:
			}
			if a := s2.POST("k", "wait=100ms"); a.Status == http.StatusCreated {
				t.Errorf("a lock that is held was granted: %v", a)
			}
			refused++
		}
	}()
	for round := range 2 {
		for i, server := range m {
			server.Restart()
			eventually(t, 10*time.Second, fmt.Sprintf("round %d: server %d has the lock again", round, i), func() bool {
				value, err := server.Try("GET", "lock:k")
				return err == nil && value != nil
			})
			// The next one may go when this one has a vote again.
			eventually(t, 20*time.Second, "it grants again", func() bool {
				_, text := s1.Ready()
				return !strings.Contains(text, "node "+server.Addr())
			})
		}
	}
	close(stop)
	if refused := <-contended; refused < 6 {
		t.Errorf("only %d others have asked for it", refused)
	}
	s1.GET("k", fmt.Sprint("fencing_token=", h.JSON.Fence)).Want(t, 200, "held")
	if lost := s1.Metric(`locksidecar_locks_lost_total{cause="gone"}`); lost != 0 {
		t.Errorf("%v locks were lost", lost)
	}
	s1.giveBack("k", h).Finally(t, 204, "")
	s2.POST("k", "wait=10s").Finally(t, 201, "held")
}

// A majority that comes back empty at once is waited for, and the old holder is
// told of its loss by then.
func TestAMajorityThatIsStartedAgainEmptyIsWaitedFor(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	s1, s2 := m.on(t, guarded()...), m.on(t, guarded()...)
	h := s1.POST("k", "ttl=3s").Finally(t, 201, "held")
	m[0].Restart()
	m[1].Restart()
	s2.awaitRefusal("other", "store_recovering")
	if status, text := s2.Ready(); status != 503 || !strings.Contains(text, "recovering") {
		t.Errorf("/readyz is %d %s", status, text)
	}
	s1.awaitLost("k", 5*time.Second, locker.CauseGone)
	s2.AwaitLog("a node of the quorum may have lost its data")
	next := s2.POST("k", "wait=20s")
	eventually(t, 20*time.Second, "the lock is granted again", func() bool {
		if next.Status != http.StatusCreated {
			next = s2.POST("k")
		}
		return next.Status == http.StatusCreated
	})
	wantFenceAbove(t, next, h)
}

// Servers that persist nothing are safe once they are guarded. That the guard's
// time runs is no reason to keep the doors closed.
func TestAStrictSidecarBeginsOnGuardedServers(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	p := startSidecar(t, m.env(guarded("STRICT=true", "REDIS_RESTART_GUARD=5s")...)...)
	p.awaitRefusal("k", "store_recovering")
	p.awaitReady()
	p.POST("k").Finally(t, 201, "held")
	code, output := launch{Env: m.env("STRICT=true")}.fail(t)
	if code != exitFailure || !strings.Contains(output, "nothing is persisted") {
		t.Errorf("without the guard: exit code %d; it says:\n%s", code, output)
	}
}

func TestSidecarsWhoseGuardsDifferDoNotStart(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	m.on(t, guarded()...)
	code, output := launch{Env: m.env("REDIS_RESTART_GUARD=1m")}.fail(t)
	if code != exitFailure || !strings.Contains(output, "REDIS_RESTART_GUARD must be the same everywhere") || !strings.Contains(output, "3000 ms") {
		t.Errorf("exit code %d; it says:\n%s", code, output)
	}
	for _, server := range m {
		if value, _ := server.Get("lock:#guard"); !strings.Contains(value, " 3000 ") {
			t.Errorf("the marker is %q", value)
		}
	}
	// As the docs say: with no sidecar running, the markers are deleted.
	direct := commander{t, m.env(guarded("REDIS_RESTART_GUARD=1m")...)}
	direct.run("exec", "--direct", "-n", "k", "--", "true").want(t, exitUnavailable, "the same everywhere")
}
