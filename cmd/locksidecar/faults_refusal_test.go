package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestARedisOutOfMemoryRefusesGrantsAndKeepsLocks(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	p.POST("k", "ttl=3s").Finally(t, 201, "held")
	p.POST("cron", "ttl=3s", "min_hold=20s").Finally(t, 201, "held")
	r.Do("CONFIG", "SET", "maxmemory", "900kb", "maxmemory-policy", "noeviction")

	a := p.POST("other").Want(t, 503, "store_write_refused")
	if a.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if r.Do("EXISTS", "lock:other") != int64(0) || r.Do("EXISTS", "lock:#grant:{lock:other}") != int64(0) {
		t.Error("the refused grant has left something behind")
	}
	p.awaitRenewals("k", 3, 15*time.Second)
	p.DELETE("k").Finally(t, 204, "")
	awaitFree(t, r, "k", 0)
	p.DELETE("cron").Finally(t, 204, "")
	if left := r.PTTL("lock:cron"); left <= 3*time.Second || left > 20*time.Second {
		t.Errorf("the minimum hold has %v left", left)
	}
	if n := p.Metric(`locksidecar_locks_lost_total{cause="expired"}`) + p.Metric(`locksidecar_locks_lost_total{cause="gone"}`); n != 0 {
		t.Errorf("%v locks were lost", n)
	}
	r.Do("CONFIG", "SET", "maxmemory", "0")
	p.POST("other").Finally(t, 201, "held")
}

func TestARedisThatIsDownIsKnownToBeAtOnce(t *testing.T) {
	t.Parallel()
	for name, takeDown := range map[string]func(*redistest.Server, *faultproxy.Proxy){
		"refused": func(r *redistest.Server, _ *faultproxy.Proxy) { r.Kill() },
		"reset at connect": func(_ *redistest.Server, proxy *faultproxy.Proxy) {
			proxy.SetConnect(func(int) faultproxy.Connect { return faultproxy.ConnectReset })
			proxy.Cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			p, proxy := through(t, r)
			if name == "refused" {
				p = on(t, r)
			}
			p.POST("k", "ttl=6s").Finally(t, 201, "held")
			takeDown(r, proxy)
			late := 0
			for i := range 10 {
				a := p.POST(fmt.Sprint("other", i)).Want(t, 503, "store_unavailable")
				if a.Took() > storeTimeout {
					late++
				}
				if a.Header.Get("Retry-After") == "" {
					t.Error("there is no Retry-After")
				}
			}
			if late > 3 {
				t.Errorf("%d of 10 refusals took longer than %v", late, storeTimeout)
			}
			p.awaitState("k", 6*time.Second, 200, "at_risk")
			if status, _ := p.Ready(); status != 503 {
				t.Errorf("readiness is %d", status)
			}
			if n := p.Metric(`locksidecar_acquires_total{result="unresolved"}`); n != 0 {
				t.Errorf("%v outcomes are unresolved, though all are certain", n)
			}
		})
	}
}

func TestAnErrorInTheScriptLeavesNoLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	for i, bad := range []string{"abc", "9223372036854775807", "9007199254740992", "-1", "1e3"} {
		key := fmt.Sprint("k", i)
		record := "lock:#grant:{lock:" + key + "}"
		r.Do("HSET", record, "fence", bad)
		p.POST(key).Want(t, 503, "store_error")
		if r.Do("EXISTS", "lock:"+key) != int64(0) {
			t.Errorf("fence %s: a lock was left behind", bad)
		}
		if got := r.Hash(record); len(got) != 1 || got["fence"] != bad {
			t.Errorf("fence %s: the record was written", bad)
		}
		r.Do("DEL", record)
		p.POST(key).Finally(t, 201, "held")
	}
}
