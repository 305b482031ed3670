package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestWhatIsNotALockIsToldAndLeftAlone(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	r.Do("RPUSH", "lock:list", "x", "y")
	r.Do("HSET", "lock:hash", "field", "value")
	r.Do("SET", "lock:string", "somebody's value")
	r.Do("SET", "lock:token", "ls1/ns/pod/NOTATOKEN") // looks like ours, and has no TTL

	keys := []string{"list", "hash", "string", "token"}
	for i, key := range keys {
		for _, a := range []answer{p.POST(key).Finally(t, 422, "key_conflict"), p.GET(key).Want(t, 404, "unknown"), p.DELETE(key).Want(t, 404, "not_held")} {
			for _, raw := range []string{"WRONGTYPE", "script", "user_script", "ERR"} {
				if strings.Contains(a.Body, raw) {
					t.Errorf("%s: the answer repeats Redis' words: %s", key, a.Body)
				}
			}
		}
		if n := p.Metric("locksidecar_orphans_total"); n != float64(i+1) {
			t.Errorf("%s: %v orphans are counted, want %d", key, n, i+1)
		}
		if r.PTTL("lock:"+key) != redistest.NoTTL {
			t.Errorf("%s was given a time to live", key)
		}
	}
	if n := r.Do("LLEN", "lock:list"); n != int64(2) {
		t.Errorf("the list has %v elements", n)
	}
	if h := r.Hash("lock:hash"); len(h) != 1 || h["field"] != "value" {
		t.Errorf("the hash is %v", h)
	}
	wantValue(t, r, "string", "somebody's value")
	wantValue(t, r, "token", "ls1/ns/pod/NOTATOKEN")
	if strings.Contains(p.Log(), "somebody's value") {
		t.Error("a foreign value is in the log")
	}
	r.Do("DEL", "lock:list")
	p.POST("list").Finally(t, 201, "held")
}

func TestOnlyTheVeryTokenCountsAsOurs(t *testing.T) {
	t.Parallel()
	const ttl, theirs = 3 * time.Second, time.Minute
	r := redistest.Start(t)
	p := on(t, r)
	cases := map[string]func(token string) string{
		"prefix":     func(token string) string { return token[:len(token)-1] },
		"longer":     func(token string) string { return token + "A" },
		"lower-case": strings.ToLower,
		"nul":        func(token string) string { return token + "\x00" },
		"cut-by-nul": func(token string) string { return token[:8] + "\x00" + token[9:] },
		"space":      func(token string) string { return token + " " },
		"empty":      func(string) string { return "" },
		"number":     func(string) string { return "1" },
	}
	values := make(map[string]string)
	for key, spoil := range cases {
		p.POST(key, "ttl=3s").Finally(t, 201, "held")
		recordOf(t).storeLost(key)
		token, _ := r.Get("lock:" + key)
		values[key] = spoil(token)
		r.Do("SET", "lock:"+key, values[key], "PX", theirs.Milliseconds())
	}
	for key, value := range values {
		p.awaitLost(key, ttl/3+unevenness, locker.CauseTaken)
		p.DELETE(key).Want(t, 410, "lost")
		wantValue(t, r, key, value)
	}
	// Three renewals would have been due by now, had they gone on.
	p.POST("other", "ttl=3s").Finally(t, 201, "held")
	p.awaitRenewals("other", 3, 15*time.Second)
	for key, value := range values {
		wantValue(t, r, key, value)
		if left := r.PTTL("lock:" + key); left > theirs-ttl || left < theirs/2 {
			t.Errorf("%s: another's lock has %v left of %v", key, left, theirs)
		}
	}
}

func TestNoTokenIsUsedTwice(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	seen := make(map[string]bool)
	for i := range 50 {
		p.POST("k", "owner=w", "ttl=30s").Finally(t, 201, "held")
		token, ok := r.Get("lock:k")
		if !ok || seen[token] {
			t.Fatalf("grant %d has a token that was used before", i)
		}
		seen[token] = true
		p.POST("k", "owner=w", "ttl=30s").Want(t, 200, "held")
		wantValue(t, r, "k", token)
		p.DELETE("k", "owner=w").Finally(t, 204, "")
	}
}

func TestTheTimeToLiveIsThatOfTheLeaseToTheMillisecond(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	p.POST("short", "ttl=999ms").Want(t, 400, "invalid_ttl")
	for _, ms := range []int64{1000, 1001, 1999, 29999, 30001, 86_400_000} {
		key := fmt.Sprint("k", ms)
		ttl := time.Duration(ms) * time.Millisecond
		a := p.POST(key, fmt.Sprintf("ttl=%dms", ms)).Finally(t, 201, "held")
		left := r.PTTL("lock:" + key)
		answered := locker.BootTime()
		if earliest := ttl - answered.Sub(a.Sent) - 5*time.Millisecond; left < earliest || left > ttl {
			t.Errorf("ttl=%v: Redis keeps it for %v, want %v to %v", ttl, left, earliest, ttl)
		}
		if ours, latest := locker.Instant(a.JSON.ValidUntilMS*1e6), answered.Add(left); ours > latest {
			t.Errorf("ttl=%v: the lease is said to outlive the lock by %v", ttl, ours.Sub(latest))
		}
	}
}
