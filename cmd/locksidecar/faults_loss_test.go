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

func TestRedisThatComesBackEmptyEndsLocksAtTheirNextRenewal(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, s2 := on(t, r), on(t, r)
	// Not before a third of the TTL does the first one ask, and find what is made here.
	h := s1.POST("k", "ttl=9s").Finally(t, 201, "held")
	s1.POST("other", "ttl=9s").Finally(t, 201, "held")
	recordOf(t).storeLost("k") // there is no restart guard in this version

	r.Kill()
	wantInTime(t, s2.awaitRefusal("k", "store_unavailable"), storeTimeout)
	r.Restart()

	var granted answer
	eventually(t, 5*time.Second, "the lock is granted again", func() bool {
		granted = s2.POST("k", "ttl=30s")
		return granted.Status == http.StatusCreated
	})
	wantFenceAbove(t, granted, h)
	lost := s1.awaitLost("k", 9*time.Second, locker.CauseTaken)
	if lost.JSON.Fence != h.JSON.Fence {
		t.Errorf("the loss is told of %d, want %d", lost.JSON.Fence, h.JSON.Fence)
	}
	s1.awaitLost("other", 9*time.Second, locker.CauseGone)
	s1.DELETE("k").Want(t, 410, "lost")
	s1.DELETE("other").Want(t, 410, "lost")
	s2.GET("k").Want(t, 200, "held")
}

func TestRedisThatComesBackWithItsAOFHasEveryLock(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"everysec", "always"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t, "appendonly yes", "appendfsync "+policy)
			s1, s2 := on(t, r), on(t, r)
			h := s1.POST("k", "ttl=6s").Finally(t, 201, "held")
			r.Kill()
			s2.awaitRefusal("k", "store_unavailable")
			s1.awaitState("k", 6*time.Second, 200, "at_risk")
			r.Restart()
			back := s1.awaitState("k", 6*time.Second, 200, "held")
			if back.JSON.Fence != h.JSON.Fence {
				t.Errorf("the lock is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
			}
			eventually(t, 10*time.Second, "the other sidecar reaches the store", func() bool {
				a := s2.POST("k")
				if a.Status == http.StatusCreated {
					t.Fatalf("a lock that is held was granted: %v", a)
				}
				return a.Is(409, "held")
			})
			s1.DELETE("k").Finally(t, 204, "")
		})
	}
}

func TestALockDeletedByHandIsLostAndNeverMadeAnew(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	r := redistest.Start(t)
	p := on(t, r)
	for _, command := range [][]any{{"FLUSHALL"}, {"FLUSHDB"}, {"DEL", "lock:k"}} {
		h := p.POST("k", "ttl=3s").Finally(t, 201, "held")
		r.Do(command...)
		p.awaitLost("k", ttl, locker.CauseGone) // not expired
		p.DELETE("k", fmt.Sprint("fencing_token=", h.JSON.Fence)).Want(t, 410, "lost")
	}
	p.POST("other", "ttl=3s").Finally(t, 201, "held")
	p.awaitRenewals("other", 2, 10*time.Second)
	if r.Do("EXISTS", "lock:k") != int64(0) {
		t.Error("a lost lock is in Redis again")
	}
	if n := p.Metric(`locksidecar_locks_lost_total{cause="gone"}`); n != 3 {
		t.Errorf("%v losses are counted, want 3", n)
	}
}

func TestAServerThatEvictsIsWarnedOfAndItsLossesAreTold(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			const ttl, locks = 4 * time.Second, 20
			r := redistest.Start(t, "maxmemory-policy "+policy)
			p := on(t, r)
			p.AwaitLog(`"check":"eviction"`)
			eventually(t, 10*time.Second, "readiness warns", func() bool {
				status, text := p.Ready()
				return status == 200 && strings.Contains(text, "warning: maxmemory-policy is "+policy)
			})
			if p.Metric(`locksidecar_warnings{check="eviction"}`) != 1 {
				t.Error("the metric does not warn")
			}
			var held []answer
			for i := range locks {
				held = append(held, p.POST(fmt.Sprint("k", i), "ttl=4s").Finally(t, 201, "held"))
			}
			r.Do("CONFIG", "SET", "maxmemory", "900kb") // less than an empty server takes
			_, _ = r.Try("SET", "filler", "x")          // evicts, and may be refused after that
			var evicted []string
			for i := range locks {
				if key := fmt.Sprint("k", i); r.Do("EXISTS", "lock:"+key) == int64(0) {
					evicted = append(evicted, key)
				}
			}
			if len(evicted) == 0 {
				t.Fatal("nothing was evicted")
			}
			for _, key := range evicted {
				p.awaitLost(key, ttl, locker.CauseGone) // not expired
			}
			t.Logf("%d of %d locks were left", locks-len(evicted), locks)
			r.Do("CONFIG", "SET", "maxmemory", "0")
			for i, before := range held {
				if a := p.POST(fmt.Sprint("k", i)); a.Status == http.StatusCreated {
					wantFenceAbove(t, a, before)
				}
			}
		})
	}
}

func TestAfterALossOnlyOneOfThoseWhoContendHolds(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := []*proc{on(t, r, "HOLDER=s0"), on(t, r, "HOLDER=s1"), on(t, r, "HOLDER=s2")}
	s[0].POST("k", "ttl=3s").Finally(t, 201, "held")
	r.Do("DEL", "lock:k")
	s[0].awaitLost("k", 3*time.Second, locker.CauseGone)

	// Each in turn takes it, is the only one to hold it, and gives it back.
	for round := range 12 {
		winner := s[round%3]
		winner.POST("k", "ttl=3s").Finally(t, 201, "held")
		value, _ := r.Get("lock:k")
		if holder, _, ours := locker.ReadValue(value); !ours || holder != fmt.Sprint("s", round%3) {
			t.Fatalf("round %d: another's value is at the key", round)
		}
		for i, p := range s {
			if p == winner {
				p.GET("k").Want(t, 200, "held")
				continue
			}
			p.POST("k", "ttl=3s").Finally(t, 409, "held")
			if a := p.GET("k"); a.Status == http.StatusOK {
				t.Fatalf("round %d: s%d holds it too", round, i)
			}
		}
		winner.DELETE("k").Finally(t, 204, "")
	}
}
