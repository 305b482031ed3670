package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestWaitersOfSeveralSidecarsAreServedInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	sidecars := []*proc{on(t, r), on(t, r), on(t, r)}
	held := sidecars[0].POST("k", "ttl=60s").Finally(t, 201, "held")
	var served sync.WaitGroup
	var mu sync.Mutex
	var order []int
	arrivals := []int{0, 1, 1, 1, 1, 2, 0, 1, 1, 2, 1, 0} // the second has most, and neither starves others nor is overtaken
	for i, who := range arrivals {
		p := sidecars[who]
		got := p.enter(r, "k", "ttl=60s", "wait=15s")
		served.Go(func() {
			a := <-got
			if !a.Is(201, "held") {
				t.Errorf("waiter %d: %v", i, a)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if a := p.giveBack("k", a).settled(); !a.Is(204, "") {
				t.Errorf("waiter %d gives back: %v", i, a)
			}
		})
	}
	began := time.Now()
	sidecars[0].giveBack("k", held).Finally(t, 204, "")
	served.Wait()
	took := time.Since(began)
	if !slices.IsSorted(order) || len(order) != len(arrivals) {
		t.Errorf("served in the order %v", order)
	}
	if took > 4*time.Second {
		t.Errorf("%d hand-overs took %v: they were not woken", len(arrivals), took)
	}
	t.Logf("%d hand-overs took %v", len(arrivals), took)
}

func TestADeadPlaceInLineIsPassedOverWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(*proc){
		"killed":  (*proc).Kill,
		"stopped": (*proc).Stop,
	} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, waits=%t", name, waits), func(t *testing.T) {
				t.Parallel()
				r := redistest.Start(t)
				one, dying, other := on(t, r), on(t, r), on(t, r)
				held := one.POST("k", "ttl=60s").Finally(t, 201, "held")
				for range 3 {
					dying.enter(r, "k", "ttl=60s", "wait=15s")
				}
				var next <-chan answer
				if waits {
					next = other.enter(r, "k", "ttl=60s", "wait=15s")
				}
				die(dying)
				one.giveBack("k", held).Finally(t, 204, "")
				began := time.Now()
				if waits {
					(<-next).Want(t, 201, "held")
				} else {
					eventually(t, 10*time.Second, "try-once succeeds", func() bool {
						a := other.POST("k", "ttl=60s")
						if !a.Is(409, "queued") && !a.Is(201, "held") {
							t.Errorf("the answer is %v", a)
						}
						return a.Status == 201
					})
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the dead place was passed over after %v", took)
				}
				if name == "stopped" {
					dying.Cont()
					dying.awaitWaiting(3)
				}
			})
		}
	}
}

func TestASidecarThatGoesOnAfterAStopIsBackInLine(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	one, stopped := on(t, r), on(t, r)
	held := one.POST("k", "ttl=60s").Finally(t, 201, "held")
	first := stopped.enter(r, "k", "ttl=60s", "wait=15s")
	stopped.Stop()
	second := one.enter(r, "k", "ttl=60s", "wait=15s")
	one.giveBack("k", held).Finally(t, 204, "")
	got := (<-second).Want(t, 201, "held")
	stopped.Cont()
	one.giveBack("k", got).Finally(t, 204, "")
	began := time.Now()
	(<-first).Want(t, 201, "held")
	if took := time.Since(began); took > pollBound {
		t.Errorf("the one that had been stopped had to wait for %v", took)
	}
}

func TestAWaiterTakesTheLockOfADeadHolderAtItsExpiry(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t) // which tells nobody of keys that expire, as is the default
	holder, p := on(t, r), on(t, r)
	// Redis removes expired keys when it gets round to it.
	r.Do("EVAL", "for i = 1, 100000 do redis.call('SET', 'other' .. i, '', 'PX', 1500) end", "0")
	holder.POST("k", "ttl=1500ms").Finally(t, 201, "held")
	got := p.enter(r, "k", "ttl=60s", "wait=15s")
	holder.Kill()
	earliest := locker.BootTime()
	left := r.PTTL("lock:k")
	latest := locker.BootTime().Add(left + pollBound)
	granted := (<-got).Want(t, 201, "held")
	if earliest = earliest.Add(left - time.Millisecond); granted.Got < earliest || granted.Got > latest {
		t.Errorf("the lock had %v left and was granted %v after its expiry", left, granted.Got.Sub(earliest))
	}
}

func TestLocksDroppedAtShutdownWakeWaitersElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	one, two := on(t, r), on(t, r)
	w := one.wire()
	if a := w.ask(http.MethodPost, "/locks/k", "ttl=60s"); a.Status != 201 {
		t.Fatal(a)
	}
	w.Close() // so that it need not wait for its caller
	got := two.enter(r, "k", "ttl=60s", "wait=15s")
	one.Signal(syscall.SIGTERM)
	began := time.Now()
	(<-got).Want(t, 201, "held")
	if took := time.Since(began); took > atOnce && two.wokenUp() == 0 {
		t.Errorf("the waiter elsewhere was granted after %v, and was not woken", took)
	}
	if code := one.WaitExit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// wokenUp is how often waiters have been woken.
func (p *proc) wokenUp() float64 { p.t.Helper(); return p.Metric("locksidecar_wakeups_total") }

func TestSIGTERMEndsAllWaitsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	r := redistest.Start(t)
	holder, p, third := on(t, r), on(t, r), on(t, r)
	held := holder.POST("k", "ttl=60s").Finally(t, 201, "held")
	var waits [n]<-chan answer
	for i := range waits {
		waits[i] = p.ask("k", "wait=18s")
		if i%10 == 9 { // one whose first request does not reach the store in time does not wait
			p.awaitWaiting(i + 1)
		}
	}
	behind := third.enter(r, "k", "ttl=60s", "wait=15s")
	p.Signal(syscall.SIGTERM)
	began := time.Now()
	for _, got := range waits {
		if a := (<-got).Want(t, 503, "shutting_down"); a.Header.Get("Retry-After") == "" {
			t.Error("there is no Retry-After")
		}
	}
	if took := time.Since(began); took > 100*time.Millisecond+unevenness {
		t.Errorf("the waits have ended after %v", took)
	}
	if code := p.WaitExit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	woken := third.wokenUp()
	began = time.Now()
	holder.giveBack("k", held).Finally(t, 204, "")
	(<-behind).Want(t, 201, "held")
	if took := time.Since(began); took > atOnce && third.wokenUp() == woken {
		t.Errorf("the one behind those that were sent away was granted after %v, and was not woken", took)
	}
}
