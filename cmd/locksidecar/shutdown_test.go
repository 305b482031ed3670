package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// shutdownSlack is what a machine that runs many tests adds to a shutdown.
const shutdownSlack = 5 * time.Second

// stopped is the last line of the log, which counts what became of the locks.
func (p *proc) stopped() (dropped, released, unconfirmed, left int) {
	p.t.Helper()
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	last := p.lines("stopped")
	if len(last) != 1 || !strings.Contains(lines[len(lines)-1], `"msg":"stopped"`) {
		p.t.Fatalf("the log ends otherwise:\n%s", p.Log())
	}
	count := func(name string) int { n, _ := last[0][name].(float64); return int(n) }
	return count("dropped"), count("released"), count("unconfirmed"), count("left_to_expire")
}

// takeMany takes n locks, k0 to k(n-1), over a few connections, and returns a
// function that closes those.
func (p *proc) takeMany(n int, form string) (leave func()) {
	p.t.Helper()
	const abreast = 4
	connections := make([]*wire, min(n, abreast))
	var wg sync.WaitGroup
	for c := range connections {
		connections[c] = p.wire()
		wg.Go(func() {
			for i := c; i < n; i += len(connections) {
				if a, err := connections[c].take(fmt.Sprintf("k%d", i), form); err != nil || a.Status != http.StatusCreated {
					p.t.Errorf("lock %d: %v, %v", i, a, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if p.t.Failed() {
		p.t.FailNow()
	}
	return func() {
		for _, c := range connections {
			_ = c.Close()
		}
	}
}

func TestSIGTERMEndsLocksAsTheModeSays(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	for _, mode := range []string{"drop", "guarded", "release"} {
		for _, n := range []int{0, 1, 1000} {
			for _, open := range []bool{false, true} {
				if n == 0 && open {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/open=%v", mode, n, open), func(t *testing.T) {
					t.Parallel()
					redis := redistest.Start(t)
					p := on(t, redis, "SHUTDOWN_MODE="+mode, "SHUTDOWN_GRACE="+grace.String())
					leave := p.takeMany(n, "ttl=60s")
					if !open {
						leave()
					}
					dropped, left := n, 0
					waits := open
					if mode == "release" || mode == "guarded" && open {
						dropped, left, waits = 0, n, n > 0
					}

					began := time.Now()
					p.Signal(syscall.SIGTERM)
					if code := p.WaitExit(10 * time.Second); code != 0 {
						t.Errorf("exit code %d", code)
					}
					took := time.Since(began)
					if waits && took < grace || took > grace+shutdownSlack {
						t.Errorf("it took %v with a grace of %v", took, grace)
					}
					gotDropped, released, unconfirmed, gotLeft := p.stopped()
					if gotDropped != dropped || gotLeft != left || released != 0 || unconfirmed != 0 {
						t.Errorf("dropped %d, want %d; left %d, want %d; released %d; unconfirmed %d", gotDropped, dropped, gotLeft, left, released, unconfirmed)
					}
					if keys := redis.Keys("lock:k*"); len(keys) != left {
						t.Errorf("%d locks are left in Redis, want %d", len(keys), left)
					}
					if left > 0 {
						if ttl := redis.PTTL("lock:k0"); ttl <= 0 || ttl > time.Minute {
							t.Errorf("what is left ends in %v", ttl)
						}
					}
				})
			}
		}
	}
}

func TestTheDoorsStayOpenDuringTheGrace(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis, "SHUTDOWN_MODE=release", "SHUTDOWN_GRACE=60s")
	p.POST("a", "ttl=3s", "owner=w1").Finally(t, http.StatusCreated, "held")
	p.POST("b", "ttl=3s", "owner=w1").Finally(t, http.StatusCreated, "held")
	if status, text := p.Ready(); status != http.StatusOK {
		t.Fatalf("/readyz before: %d %s", status, text)
	}
	p.Signal(syscall.SIGTERM)
	p.AwaitLog("shutting down")

	eventually(t, 5*time.Second, "new locks are refused", func() bool {
		return p.POST("new").Is(http.StatusServiceUnavailable, "shutting_down")
	})
	if refused := p.POST("new"); refused.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", refused.Header)
	}
	if status, text := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "draining") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if status, _ := p.page("/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d", status)
	}
	p.POST("a", "owner=w1").Want(t, http.StatusOK, "")
	p.PATCH("a", "owner=w1", "note=last+words").Want(t, http.StatusOK, "")
	eventually(t, 12*time.Second, "renewals go on", func() bool {
		return p.GET("a", "owner=w1").Want(t, http.StatusOK, "").JSON.Renewals >= 4 // beyond one TTL
	})
	if redis.PTTL("lock:new") != redistest.NoKey {
		t.Error("a refused lock is in Redis")
	}
	p.DELETE("a", "owner=w1").Finally(t, http.StatusNoContent, "")
	p.DELETE("b", "owner=w1").Finally(t, http.StatusNoContent, "")

	if code := p.WaitExit(10 * time.Second); code != 0 { // at once
		t.Errorf("exit code %d", code)
	}
	if dropped, released, unconfirmed, left := p.stopped(); dropped != 0 || released != 2 || unconfirmed != 0 || left != 0 {
		t.Errorf("dropped %d, released %d, unconfirmed %d, left %d", dropped, released, unconfirmed, left)
	}
	if keys := redis.Keys("lock:?"); len(keys) > 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}

func TestALockIsClearedOnceItsCallerLeavesDuringTheGrace(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis, "SHUTDOWN_MODE=guarded", "SHUTDOWN_GRACE=1500ms")
	stays, goes := p.wire(), p.wire()
	stays.ask(http.MethodPost, "/locks/stays", "ttl=60s").Finally(t, http.StatusCreated, "held")
	goes.ask(http.MethodPost, "/locks/goes", "ttl=60s").Finally(t, http.StatusCreated, "held")
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	p.AwaitLog("shutting down")
	goes.Close()
	eventually(t, 10*time.Second, "the lock whose caller has gone is given back", func() bool {
		return redis.PTTL("lock:goes") == redistest.NoKey
	})
	if p.Exited() && time.Since(began) < 1500*time.Millisecond || redis.PTTL("lock:stays") <= 0 {
		t.Error("the other lock has ended too")
	}
	p.WaitExit(10 * time.Second)
	if dropped, _, _, left := p.stopped(); dropped != 1 || left != 1 || redis.PTTL("lock:stays") <= 0 {
		t.Errorf("dropped %d, left %d", dropped, left)
	}
}

func TestShutdownIsBoundedWhenRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const n = 300
	for name, hurt := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill,
		"frozen": (*redistest.Server).Stop,
	} {
		for _, mode := range []string{"drop", "guarded"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				p := on(t, redis, "SHUTDOWN_MODE="+mode)
				p.takeMany(n, "ttl=60s")()
				hurt(redis)
				began := time.Now()
				p.Signal(syscall.SIGTERM)
				if code := p.WaitExit(10 * time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if took := time.Since(began); took > 2*time.Second+shutdownSlack {
					t.Errorf("it took %v", took)
				}
				if dropped, released, unconfirmed, left := p.stopped(); dropped != 0 || released != 0 || unconfirmed != n || left != 0 {
					t.Errorf("dropped %d, released %d, unconfirmed %d, left %d", dropped, released, unconfirmed, left)
				}
			})
		}
	}
}

func TestARequestThatHangsOnTheStoreIsAnsweredBeforeTheProcessEnds(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	warm := p.wire()
	warm.ask(http.MethodPost, "/locks/warm", "ttl=60s").Finally(t, http.StatusCreated, "held")
	warm.ask(http.MethodDelete, "/locks/warm", "").Finally(t, http.StatusNoContent, "")
	redis.Stop()
	asking := p.wire()
	asking.send(request(http.MethodPost, "/locks/k", "ttl=60s"))
	eventually(t, 5*time.Second, "it asks", func() bool { return p.listed()["asking"] == 1 || p.listed()["releasing"] == 1 })
	p.Signal(syscall.SIGTERM)
	if a := asking.answer(); a.Status != http.StatusServiceUnavailable {
		t.Errorf("the answer is %v", a)
	}
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestASecondSignalExitsAtOnceAndDropsNothing(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			p := on(t, redis, "SHUTDOWN_MODE=release", "SHUTDOWN_GRACE=60s")
			p.POST("k", "ttl=60s").Finally(t, http.StatusCreated, "held")
			p.Signal(syscall.SIGTERM)
			p.AwaitLog("shutting down")
			began := time.Now()
			p.Signal(second)
			if code := p.WaitExit(10 * time.Second); code != 128+int(second) {
				t.Errorf("exit code %d, want %d", code, 128+int(second))
			}
			if took := time.Since(began); took > shutdownSlack {
				t.Errorf("it took %v", took)
			}
			said := p.lines("second signal: exiting at once; what is held ends by its TTL")
			if len(said) != 1 || said[0]["left_to_expire"] != 1.0 {
				t.Errorf("the log does not say what is left:\n%s", p.Log())
			}
			if ttl := redis.PTTL("lock:k"); ttl <= 0 {
				t.Errorf("the lock's PTTL is %v", ttl)
			}
		})
	}
}

func TestSIGINTEndsLikeSIGTERM(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.takeMany(3, "ttl=60s")()
	p.Signal(syscall.SIGINT)
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if dropped, _, _, _ := p.stopped(); dropped != 3 || len(redis.Keys("lock:k*")) > 0 {
		t.Errorf("dropped %d; left in Redis: %v", dropped, redis.Keys("lock:k*"))
	}
}

func TestQuitEndsLikeSIGTERM(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.takeMany(3, "ttl=60s")()
	p.Request(http.MethodPost, "/quit").Want(t, http.StatusAccepted, "")
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if dropped, _, _, _ := p.stopped(); dropped != 3 || len(redis.Keys("lock:k*")) > 0 {
		t.Errorf("dropped %d; left in Redis: %v", dropped, redis.Keys("lock:k*"))
	}
}

// TestAFirstSignalDuringAQuitCutsNothingShort: the kubelet's SIGTERM comes to all
// containers of a pod, of which one may have sent POST /quit at its end.
func TestAFirstSignalDuringAQuitCutsNothingShort(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("another=%v", again), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			p := on(t, redis, "SHUTDOWN_MODE=release", "SHUTDOWN_GRACE=60s")
			p.POST("k", "ttl=60s", "owner=w1").Finally(t, http.StatusCreated, "held")
			p.Request(http.MethodPost, "/quit").Want(t, http.StatusAccepted, "")
			p.AwaitLog("shutting down")
			p.Signal(syscall.SIGTERM)
			p.AwaitLog("shutting down already: the next signal ends that at once")
			if again {
				p.Signal(syscall.SIGTERM)
				if code := p.WaitExit(10 * time.Second); code != 143 || redis.PTTL("lock:k") <= 0 {
					t.Errorf("exit code %d", code)
				}
				return
			}
			p.DELETE("k", "owner=w1").Finally(t, http.StatusNoContent, "")
			if code := p.WaitExit(10 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if _, released, _, left := p.stopped(); released != 1 || left != 0 {
				t.Errorf("released %d, left %d", released, left)
			}
		})
	}
}

func TestDrainRefusesNewLocksAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.POST("k", "ttl=3s", "owner=w1").Finally(t, http.StatusCreated, "held")
	p.Request(http.MethodPost, "/drain").Finally(t, http.StatusNoContent, "")
	refused := p.POST("new").Want(t, http.StatusServiceUnavailable, "draining")
	if refused.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", refused.Header)
	}
	if status, text := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "draining") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	p.POST("k", "owner=w1").Want(t, http.StatusOK, "")
	eventually(t, 20*time.Second, "renewals go on", func() bool {
		return p.GET("k", "owner=w1").Want(t, http.StatusOK, "").JSON.Renewals >= 4 // beyond one TTL
	})
	p.DELETE("k", "owner=w1").Finally(t, http.StatusNoContent, "")
	if p.Exited() {
		t.Error("the process has ended")
	}
}
