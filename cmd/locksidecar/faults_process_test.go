package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// A stopped process cannot know that its leases have ended. Requests that have
// piled up in the kernel are what it sees first when it goes on, before any
// loop of its own has run.
func TestTheFirstAnswerAfterAStopSaysLost(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	other := on(t, redis)
	const processes, keys, rounds = 3, 12, 3 // 108 locks in all
	for n := range processes {
		p := on(t, redis)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				p.surviveStop(t, redis, other, fmt.Sprintf("%d-%d-", n, round), keys)
			}
		})
	}
}

// surviveStop takes locks, stops the process until they are free, has the
// other take half of them, and looks at the first answers afterwards.
func (p *proc) surviveStop(t *testing.T, redis *redistest.Server, other *proc, prefix string, keys int) {
	fences := make([]locker.Fence, keys)
	for i := range fences {
		fences[i] = p.POST(prefix+strconv.Itoa(i), "ttl=1s").Finally(t, http.StatusCreated, "held").JSON.Fence
	}
	ahead := []*wire{p.wire(), p.wire()} // connections that are open already
	p.Stop()
	for i := range fences {
		awaitFree(t, redis, prefix+strconv.Itoa(i), 5*time.Second)
	}
	for i := 0; i < keys; i += 2 {
		a := other.POST(prefix+strconv.Itoa(i), "ttl=60s").Finally(t, http.StatusCreated, "held")
		if a.JSON.Fence <= fences[i] {
			t.Errorf("the fencing token %d does not rise above %d", a.JSON.Fence, fences[i])
		}
	}

	list := append(ahead, p.wire())
	gets, deletes := make([]*wire, keys), make([]*wire, keys)
	for i := range fences {
		target := fmt.Sprintf("/locks/%s%d?fencing_token=%d", prefix, i, fences[i])
		gets[i], deletes[i] = p.wire(), p.wire()
		gets[i].send(request(http.MethodGet, target, ""))
		deletes[i].send(request(http.MethodDelete, target, ""))
	}
	for _, w := range list {
		w.send(request(http.MethodGet, "/locks", ""))
	}
	p.Cont()
	for _, w := range list {
		if a := w.answer(); a.Status != http.StatusOK || strings.Contains(a.Body, `"held_for_ms"`) {
			t.Errorf("the list tells of held locks: %v", a)
		}
	}
	for i := range fences {
		// The DELETE that was told of the loss clears it.
		if a := gets[i].answer(); !a.Is(http.StatusGone, "lost") && !a.Is(http.StatusNotFound, "not_held") {
			t.Errorf("GET: %v", a)
		}
		if a := deletes[i].answer(); !a.Is(http.StatusGone, "lost") || a.JSON.Cause != string(locker.CauseExpired) {
			t.Errorf("DELETE: %v", a)
		}
		want := redistest.NoKey
		if pttl := redis.PTTL(fmt.Sprintf("lock:%s%d", prefix, i)); i%2 == 1 && pttl != want || i%2 == 0 && pttl <= 50*time.Second {
			t.Errorf("lock %d: PTTL %v", i, pttl)
		}
	}
}

func TestAKilledProcessLeavesItsLocksToTheirTTL(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const holder = "POD_NAME=the-pod"
	first := on(t, redis, holder)
	first.POST("k", "ttl=6s").Finally(t, http.StatusCreated, "held")
	first.awaitRenewals("k", 1, 15*time.Second)
	token, _ := redis.Get("lock:k")
	first.Kill()
	left := redis.PTTL("lock:k")

	second := on(t, redis, holder)
	if a := second.GET("k").Want(t, http.StatusNotFound, "not_held"); a.JSON.Holder == nil || a.JSON.Holder.Pod == "" {
		t.Errorf("the answer does not tell whose it is: %v", a)
	}
	second.DELETE("k").Want(t, http.StatusNotFound, "not_held")
	second.POST("k").Finally(t, http.StatusConflict, "held")
	wantValue(t, redis, "k", token)
	eventually(t, 6*time.Second+unevenness, "the lock is free", func() bool {
		now := redis.PTTL("lock:k")
		if now > left {
			t.Fatalf("the new process has renewed the old one's lock: PTTL %v after %v", now, left)
		}
		left = max(now, 0)
		return now == redistest.NoKey
	})
	second.POST("k").Finally(t, http.StatusCreated, "held")
}

// limitFiles sets how many file descriptors the process may have.
func (p *proc) limitFiles(n uint64) {
	p.t.Helper()
	limit := syscall.Rlimit{Cur: n, Max: n}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(p.Pid()), syscall.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		p.t.Fatal(errno)
	}
}

// cpu returns the processor time that the process has used.
func (p *proc) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

func TestWithoutFileDescriptorsLocksAreRenewedAndNothingSpins(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	held := p.POST("k", "ttl=3s").Finally(t, http.StatusCreated, "held")
	p.awaitRenewals("k", 1, 15*time.Second)
	w := p.wire()
	w.ask(http.MethodGet, "/locks/k", "").Want(t, http.StatusOK, "")
	p.limitFiles(64)
	crowd := make([]*wire, 200)
	for i := range crowd {
		crowd[i] = p.wire() // the kernel accepts what the process cannot
	}

	used := p.cpu()
	began := time.Now()
	eventually(t, 30*time.Second, "renewals go on", func() bool {
		a := w.ask(http.MethodGet, "/locks/k", "").Want(t, http.StatusOK, "")
		return a.JSON.Fence == held.JSON.Fence && a.JSON.Renewals >= 7 // two TTLs
	})
	if spent, took := p.cpu()-used, time.Since(began); spent > took/2 {
		t.Errorf("%v of processor time in %v", spent, took)
	}
	if a := w.ask(http.MethodPost, "/locks/more", "ttl=60s"); a.Status != http.StatusCreated && a.Status != http.StatusServiceUnavailable {
		t.Errorf("a new lock: %v", a)
	}
	for _, c := range crowd {
		c.Close()
	}
	p.wire().ask(http.MethodGet, "/locks/k", "").Want(t, http.StatusOK, "")
	p.DELETE("k").Finally(t, http.StatusNoContent, "")
}

func TestARedisThatTakesNoMoreClientsKeepsTheOnesItHas(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "maxclients 10")
	p := on(t, redis)
	held := p.POST("k", "ttl=3s").Finally(t, http.StatusCreated, "held")
	p.awaitRenewals("k", 1, 15*time.Second)
	full := false
	for range 12 {
		_, err := redis.Dial().Do("PING")
		full = err != nil
	}
	if !full {
		t.Fatal("the server still takes clients")
	}
	late := on(t, redis)
	eventually(t, 30*time.Second, "renewals go on", func() bool {
		a := p.GET("k").Want(t, http.StatusOK, "")
		return a.JSON.Fence == held.JSON.Fence && a.JSON.Renewals >= 7 // two TTLs
	})
	p.POST("more", "ttl=60s").Finally(t, http.StatusCreated, "held")
	late.POST("late").Want(t, http.StatusServiceUnavailable, "store_unavailable")
	if status, text := late.Ready(); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz of one without a connection: %d %s", status, text)
	}
	p.DELETE("k").Finally(t, http.StatusNoContent, "")
}

func TestALockBelongsToTheSidecarAndNotToAConnection(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	first := p.wire()
	first.ask(http.MethodPost, "/locks/k", "ttl=60s").Finally(t, http.StatusCreated, "held")
	first.Close()
	p.wire().ask(http.MethodGet, "/locks/k", "").Want(t, http.StatusOK, "held")
	out, err := curl("-X", "DELETE", p.URL+"/locks/k")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	awaitFree(t, redis, "k", 5*time.Second)
}

func TestAnAcceptedDeleteIsCarriedOutThoughItsCallerLeaves(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	const rounds = 200
	const abreast = 4
	var wg sync.WaitGroup
	for n := range abreast {
		wg.Go(func() {
			for round := n; round < rounds; round += abreast {
				w := p.wire()
				if a, err := w.take(fmt.Sprintf("k%d", round), "ttl=60s"); err != nil || a.Status != http.StatusCreated {
					t.Errorf("%v, %v", a, err)
					return
				}
				if _, err := w.Write([]byte(request(http.MethodDelete, fmt.Sprintf("/locks/k%d", round), ""))); err != nil {
					t.Error(err)
				}
				if round%2 == 0 {
					w.Close()
				} else {
					time.Sleep(time.Duration(round) * 5 * time.Microsecond) // so that some are on their way to Redis
					w.reset()
				}
			}
		})
	}
	wg.Wait()
	eventually(t, 10*time.Second, "every lock is free", func() bool { return len(redis.Keys("lock:k*")) == 0 })
}

func TestTheLimitRefusesNewLocksAndForgetsNone(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis, "MAX_HELD=50")
	p.takeMany(50, "ttl=60s")()
	refused := p.POST("one-more").Want(t, http.StatusTooManyRequests, "too_many_locks")
	if refused.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", refused.Header)
	}
	p.GET("k0").Want(t, http.StatusOK, "held")
	p.DELETE("k0").Finally(t, http.StatusNoContent, "")
	p.POST("one-more", "ttl=60s").Finally(t, http.StatusCreated, "held")
	if held := p.listed()["held"]; held != 50 {
		t.Errorf("%d locks are held", held)
	}
}

// storeRequests returns how many requests to the store have ended, of those that
// reads and releases make.
func (p *proc) storeRequests() (n float64) {
	p.t.Helper()
	for line := range strings.Lines(p.Metrics()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(series, "locksidecar_store_request_duration_seconds_count{") && !strings.Contains(series, `op="renew"`) {
			count, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			n += count
		}
	}
	return n
}

func TestALossIsToldFromMemory(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.POST("k", "ttl=3s").Finally(t, http.StatusCreated, "held")
	redis.Do("DEL", "lock:k")
	p.awaitLost("k", 5*time.Second, locker.CauseGone)
	redis.Stop()
	asked := p.storeRequests()
	p.DELETE("k").Want(t, http.StatusGone, "lost")
	if n := p.storeRequests() - asked; n != 0 {
		t.Errorf("the store was asked %v times", n)
	}
}

func TestALockTakenAgainAfterALossIsRenewed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	first := p.POST("k", "ttl=3s").Finally(t, http.StatusCreated, "held")
	redis.Do("DEL", "lock:k")
	p.awaitLost("k", 5*time.Second, locker.CauseGone)
	again := p.POST("k", "ttl=2s").Finally(t, http.StatusCreated, "held")
	wantFenceAbove(t, again, first)
	p.awaitRenewals("k", 9, 30*time.Second) // three TTLs
	if a := p.GET("k"); a.JSON.Fence != again.JSON.Fence {
		t.Errorf("another grant: %v", a)
	}
}

func TestAThousandLostLocksLeaveNoGoroutine(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.POST("warm").Finally(t, http.StatusCreated, "held")
	p.DELETE("warm").Finally(t, http.StatusNoContent, "")
	before := p.Metric("go_goroutines")
	const n = 1000
	p.takeMany(n, "ttl=3s")()
	redis.Do("FLUSHALL")
	w := p.wire()
	for i := range n {
		w.ask(http.MethodDelete, fmt.Sprintf("/locks/k%d", i), "").Finally(t, http.StatusGone, "lost")
	}
	w.Close()
	eventually(t, 15*time.Second, "the goroutines are those of before", func() bool {
		return p.Metric("go_goroutines") <= before+5 && p.Metric("locksidecar_locks_held") == 0
	})
}

func TestAStartWithoutRedisAnswersAtOnceAndRecoversByItself(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	p := on(t, redis)
	refused := p.POST("k").Want(t, http.StatusServiceUnavailable, "store_unavailable")
	if refused.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", refused.Header)
	}
	for page, want := range map[string]int{"/livez": http.StatusOK, "/startupz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if status, text := p.page(page); status != want {
			t.Errorf("%s: %d %s, want %d", page, status, text, want)
		}
	}
	redis.Restart()
	// That it was not ready refuses nothing: only a signal, /drain and /quit do.
	eventually(t, 15*time.Second, "it grants", func() bool { return p.POST("k").Is(http.StatusCreated, "held") })
	if status, text := p.Ready(); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
}
