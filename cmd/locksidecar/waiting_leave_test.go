package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestAWaitingCurlThatIsKilledLetsTheNextOnePassAtOnce(t *testing.T) {
	t.Parallel()
	needCurl(t)
	r := redistest.Start(t)
	one, two := on(t, r), on(t, r)
	held := one.POST("k", "ttl=60s").Finally(t, 201, "held")
	const rounds = 5
	late := 0
	for range rounds {
		cmd := exec.Command("curl", "-sS", "-d", "wait=15s", "-d", "ttl=60s", two.URL+"/locks/k")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		two.awaitWaiting(1)
		next := one.enter(r, "k", "ttl=60s", "wait=15s")
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		one.giveBack("k", held).Finally(t, 204, "")
		began := time.Now()
		held = (<-next).Want(t, 201, "held")
		if took := time.Since(began); took > atOnce {
			t.Logf("the next one was granted after %v", took)
			late++
		}
		two.awaitWaiting(0)
	}
	if late > rounds/2 {
		t.Errorf("%d of %d were not granted at once", late, rounds)
	}
	eventually(t, 10*time.Second, "nobody is in line", func() bool { return places(r, "k") == 0 })
}

func TestACurlWhoseWaitIsOverFails(t *testing.T) {
	t.Parallel()
	needCurl(t)
	r := redistest.Start(t)
	p := on(t, r)
	p.POST("k", "ttl=60s").Finally(t, 201, "held")
	out, err := curl("-d", "wait=100ms", p.URL+"/locks/k")
	if err == nil || !strings.Contains(out, "409") {
		t.Errorf("curl -f says %v: %s", err, out)
	}
}

// The callers' own patience ends just before, at, or after the lock is free.
func TestCallersWhoseOwnTimeIsOverAtTheGrantLeaveNoLock(t *testing.T) {
	t.Parallel()
	const abreast, rounds = 10, 50
	r := redistest.Start(t)
	holder, p := on(t, r), on(t, r)
	var wg sync.WaitGroup
	for c := range abreast {
		wg.Go(func() {
			for i := range rounds {
				key := fmt.Sprintf("k%d-%d", c, i)
				w, err := holder.dial()
				if err != nil {
					t.Error(err)
					return
				}
				if a, err := w.take(key, "ttl=60s"); err != nil || a.Status != 201 {
					t.Errorf("%v, %v", a, err)
					return
				}
				patience := 30*time.Millisecond + rand.N(10*time.Millisecond)
				left := make(chan error, 1)
				go func() {
					left <- p.leaveAfter(request(http.MethodPost, "/locks/"+key, "ttl=60s&wait=10s"), patience)
				}()
				time.Sleep(35 * time.Millisecond)
				// A release that is not confirmed yet is repeated.
				if a, err := w.exchange(request(http.MethodDelete, "/locks/"+key, "")); err != nil || a.Status != 204 && !a.Is(503, "release_unconfirmed") {
					t.Errorf("%v, %v", a, err)
				}
				_ = w.Close()
				if err := <-left; err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, 2*time.Second+unevenness, "every lock is free", func() bool {
		return len(r.Keys("lock:k*")) == 0 && len(r.Keys("lock:#queue:*")) == 0 && p.waiting() == 0
	})
}

func TestWaitsThatWereInVainLeaveNothing(t *testing.T) {
	t.Parallel()
	const abreast, each = 10, 500
	r := redistest.Start(t)
	holder, p := on(t, r), on(t, r, "LOG_LEVEL=info")
	holder.POST("k", "ttl=60s").Finally(t, 201, "held")
	goroutines := p.Metric("go_goroutines")
	var wg sync.WaitGroup
	for range abreast {
		w := p.wire()
		wg.Go(func() {
			for range each {
				a, err := w.exchange(request(http.MethodPost, "/locks/k", "wait=1ms"))
				if err != nil || a.Status != 409 && a.Status != 503 {
					t.Errorf("%v, %v", a, err)
					return
				}
			}
			_ = w.Close()
		})
	}
	wg.Wait()
	p.awaitWaiting(0)
	eventually(t, 10*time.Second, "nobody is in line, and no goroutine is left", func() bool {
		return places(r, "k") == 0 && p.Metric("go_goroutines") <= goroutines+10
	})
}

// Many wait for short times, for many locks, and leave when they like.
func TestNothingIsLeftInRedisOnceNobodyWaits(t *testing.T) {
	t.Parallel()
	const waiters, keys = 200, 50
	r := redistest.Start(t)
	holder, one, two := on(t, r), on(t, r), on(t, r)
	for i := range keys {
		holder.POST(fmt.Sprint("k", i), "ttl=60s").Finally(t, 201, "held")
	}
	var clients int // once each sidecar has opened those that it keeps
	quiet := time.Now()
	eventually(t, answerDeadline, "no more connections are opened", func() bool {
		if n := clientsOf(r); n != clients {
			clients, quiet = n, time.Now()
		}
		return time.Since(quiet) > time.Second
	})
	deadline := time.Now().Add(3 * time.Second)
	var wg sync.WaitGroup
	for i := range waiters {
		p := []*proc{one, two}[i%2]
		wg.Go(func() {
			for time.Now().Before(deadline) {
				key, wait := fmt.Sprint("k", rand.N(keys)), rand.N(50*time.Millisecond)
				form := fmt.Sprintf("wait=%dms", 1+wait.Milliseconds())
				if rand.N(4) == 0 {
					if err := p.leaveAfter(request(http.MethodPost, "/locks/"+key, form), rand.N(wait+1)); err != nil {
						t.Error(err)
					}
					continue
				}
				if a := p.POST(key, form); !a.Is(409, "wait_timeout") && !a.Is(503, "") {
					t.Errorf("the answer is %v", a)
				}
			}
		})
	}
	wg.Wait()
	one.awaitWaiting(0)
	two.awaitWaiting(0)
	holder.Request(http.MethodDelete, "/locks", "all=true").Want(t, 200, "")
	eventually(t, 15*time.Second, "nobody listens, and no place is left", func() bool {
		return len(channels(r)) == 0 && len(r.Keys("lock:#queue:*")) == 0 && clientsOf(r) <= clients
	})
	for _, key := range r.Keys("*") {
		if !strings.HasPrefix(key, "lock:#") || r.PTTL(key) <= 0 {
			t.Errorf("%s has no time to live, or is a lock", key)
		}
	}
}

func TestMoreWaitersThanMayAreRefusedUntilOneLeaves(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r, "MAX_WAITERS=2", "MAX_WAIT=20s")
	p.POST("k", "ttl=60s").Finally(t, 201, "held")
	p.POST("other", "ttl=60s").Finally(t, 201, "held")
	p.POST("k", "wait=21s").Want(t, 400, "invalid_wait")
	w := p.wire()
	w.send(request(http.MethodPost, "/locks/k", "wait=15s"))
	p.ask("other", "wait=15s")
	p.awaitWaiting(2)
	a := p.POST("k", "wait=15s").Want(t, 429, "too_many_waiters")
	if a.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	p.POST("free", "ttl=60s").Finally(t, 201, "held") // for one who does not wait
	w.Close()
	p.awaitWaiting(1)
	p.POST("k", "wait=10ms").Finally(t, 409, "wait_timeout")
}

// It is longer than any time-out of the server.
func TestALongWaitIsAnsweredAndAHolderThatWorksKeepsItsLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	holder, p := on(t, r), on(t, r)
	held := holder.POST("k", "ttl=3s").Finally(t, 201, "held")
	inVain := p.enter(r, "k", "wait=11s")
	patient := p.enter(r, "k", "wait=19s", "ttl=60s")
	a := (<-inVain).Want(t, 409, "wait_timeout")
	if a.Took() < 11*time.Second || a.Took() > 11*time.Second+storeTimeout+answerBound+unevenness {
		t.Errorf("the wait of 11s took %v", a.Took())
	}
	if a.JSON.Holder == nil || a.JSON.State != "held" || a.JSON.HeldHere {
		t.Errorf("the answer does not tell the holder: %v", a)
	}
	if still := holder.GET("k").Want(t, 200, ""); still.JSON.Fence != held.JSON.Fence {
		t.Errorf("grant %d is now %d", held.JSON.Fence, still.JSON.Fence)
	}
	holder.giveBack("k", held).Finally(t, 204, "")
	wantFenceAbove(t, (<-patient).Want(t, 201, "held"), held)
}
