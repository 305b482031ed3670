package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestASlowRedisPutsLocksAtRiskAndLosesNone(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]any{
		"DEBUG SLEEP":  {"DEBUG", "SLEEP", "3.5"},
		"CLIENT PAUSE": {"CLIENT", "PAUSE", "3500", "ALL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t, "enable-debug-command yes")
			p := on(t, r)
			operator := r.Dial()
			// A renewal is due after two seconds and is late as long as Redis is slow.
			h := p.POST("k", "ttl=6s").Finally(t, 201, "held")
			slow := make(chan error, 1)
			go func() {
				_, err := operator.Do(command...)
				slow <- err
			}()
			// The pause begins once the command has arrived.
			var a answer
			for i := 0; a.Status != http.StatusServiceUnavailable; i++ {
				a = p.POST(fmt.Sprint("late", i), "ttl=30s")
				wantInTime(t, a, storeTimeout)
				if i > 1000 {
					t.Fatal("Redis was not slow")
				}
				if a.Status == http.StatusCreated {
					if d := p.DELETE(fmt.Sprint("late", i)); !d.Is(204, "") && !d.Is(503, "release_unconfirmed") {
						t.Errorf("the release is %v", d)
					}
				}
			}
			a.Want(t, 503, "acquire_unresolved")
			for end := time.Now().Add(10 * time.Second); ; {
				a := p.GET("k")
				if a.Status != http.StatusOK || a.JSON.ValidForMS <= 0 || a.JSON.Fence != h.JSON.Fence {
					t.Fatalf("the lock is %v", a)
				}
				if a.JSON.State == "at_risk" {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the lock was never at risk")
				}
			}
			p.awaitState("k", 10*time.Second, 200, "held")
			if err := <-slow; err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "nothing but the lock is left", func() bool { return len(r.Keys("lock:late*")) == 0 })
		})
	}
}

func TestARedisThatIsSlowWithinTheTimeoutIsOnlySlow(t *testing.T) {
	t.Parallel()
	p, proxy := through(t, redistest.Start(t))
	const delay = storeTimeout / 2
	proxy.SetRule(always("acquire", "", faultproxy.Action{ReplyDelay: delay}))
	a := p.POST("k", "ttl=2s").Finally(t, 201, "held")
	if a.JSON.ValidForMS > 2000-20-delay.Milliseconds() {
		t.Errorf("%v after it was asked for, the lease of 2s is said to be valid for %d ms", delay, a.JSON.ValidForMS)
	}
}

func TestAFrozenRedisEndsLocksInTimeAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, s2 := on(t, r), on(t, r)
	h := s1.POST("k", "ttl=1s").Finally(t, 201, "held")
	r.Stop()
	const asked = 6
	var asking sync.WaitGroup
	for i := range asked {
		asking.Go(func() {
			a := s1.POST(fmt.Sprint("abandoned", i), "ttl=30s")
			if !a.Is(503, "acquire_unresolved") && !a.Is(503, "store_unavailable") && !a.Is(503, "store_busy") {
				t.Errorf("the answer of a frozen store is %v", a)
			}
			wantInTime(t, a, storeTimeout)
		})
	}
	lost := s1.awaitLost("k", time.Second+unevenness, locker.CauseExpired)
	if until := locker.Instant(h.JSON.ValidUntilMS * 1e6); lost.Got < until {
		t.Errorf("the lock was lost %v before its end", until.Sub(lost.Got))
	}
	asking.Wait()
	r.Cont()
	for i := range asked {
		key := fmt.Sprint("abandoned", i)
		eventually(t, 10*time.Second, key+" is free", func() bool { return s2.POST(key, "ttl=30s").Status == http.StatusCreated })
	}
	s1.GET("k").Want(t, 410, "lost")
	awaitFree(t, r, "k", 5*time.Second)
	for i := range asked {
		s2.GET(fmt.Sprint("abandoned", i)).Want(t, 200, "held") // undone by nobody
	}
}

func TestALoadingRedisIsUnavailableAndLosesNoLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "key-load-delay 50000", "loading-process-events-interval-bytes 1024", "rdbcompression no")
	for i := range 60 {
		r.Do("SET", fmt.Sprint("filler", i), strings.Repeat("x", 1024))
	}
	p := on(t, r)
	h := p.POST("k", "ttl=20s").Finally(t, 201, "held")
	r.Do("SAVE")
	r.RestartLoading()
	eventually(t, 10*time.Second, "Redis is loading", func() bool {
		_, err := r.Try("PING")
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
	a := p.POST("other").Want(t, 503, "store_unavailable")
	if a.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if status, text := p.Ready(); status != 503 {
		t.Errorf("readiness is %d %q while Redis is loading", status, text)
	}
	p.AwaitLog("LOADING")
	p.GET("k").Want(t, 200, "")
	eventually(t, 15*time.Second, "Redis has loaded", func() bool { return p.POST("after").Status == http.StatusCreated })
	if back := p.awaitState("k", 10*time.Second, 200, "held"); back.JSON.Fence != h.JSON.Fence {
		t.Errorf("the lock is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
	}
	p.DELETE("k").Finally(t, 204, "")
}

func TestARedisBusyWithAScriptIsLeftAloneAndLosesNoLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "lua-time-limit 100")
	p := on(t, r)
	h := p.POST("k", "ttl=8s").Finally(t, 201, "held")
	p.POST("given-back", "ttl=30s").Finally(t, 201, "held")
	somebody := r.Dial()
	done := make(chan error, 1)
	go func() {
		_, err := somebody.Do("EVAL", `redis.call('SET', KEYS[1], 1)
			local start = redis.call('TIME')
			repeat local now = redis.call('TIME')
			until (now[1] - start[1]) * 1000000 + now[2] - start[2] > 4500000`, 1, "theirs")
		done <- err
	}()
	eventually(t, 4*time.Second, "Redis is busy", func() bool {
		_, err := r.Try("GET", "x")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	p.POST("other").Want(t, 503, "store_busy")
	p.DELETE("given-back").Want(t, 503, "release_unconfirmed")
	p.awaitState("k", 5*time.Second, 200, "at_risk")
	if back := p.awaitState("k", 10*time.Second, 200, "held"); back.JSON.Fence != h.JSON.Fence {
		t.Errorf("the lock is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
	}
	if err := <-done; err != nil {
		t.Errorf("somebody's script was ended: %v", err)
	}
	awaitFree(t, r, "given-back", 10*time.Second)
	if r.Do("EXISTS", "lock:other") != int64(0) {
		t.Error("a refused lock is in Redis")
	}
}

func TestABlackHoleHoldsNoRequestLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	p, proxy := through(t, redistest.Start(t), "STORE_TIMEOUT=100ms")
	p.POST("k", "ttl=30s").Finally(t, 201, "held")
	proxy.SetRule(func(faultproxy.Command) faultproxy.Action { return faultproxy.Action{BlackHole: true} })
	var answers []answer
	for i := range 3 {
		a := p.POST(fmt.Sprint("other", i))
		if a.Status != http.StatusServiceUnavailable {
			t.Errorf("the answer is %v", a)
		}
		answers = append(answers, a)
	}
	answers = append(answers, p.DELETE("k").Want(t, 503, "release_unconfirmed"), p.GET("k").Want(t, 404, "unknown"))
	wantMostInTime(t, answers, timeout)
}
