package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestForgottenScriptsAreInvisibleToCallers(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	p.POST("k", "ttl=3s").Finally(t, 201, "held")
	const renewals = 5 // each after the scripts were forgotten
	for i := range renewals {
		key := fmt.Sprint("one", i)
		r.Do("SCRIPT", "FLUSH")
		p.POST(key, "ttl=30s").Finally(t, 201, "held")
		r.Do("SCRIPT", "FLUSH")
		p.DELETE(key).Finally(t, 204, "")
		r.Do("SCRIPT", "FLUSH")
		p.awaitRenewals("k", 1, 15*time.Second)
	}
	for range 3 {
		var asking sync.WaitGroup
		r.Do("SCRIPT", "FLUSH")
		for i := range 60 {
			key := fmt.Sprint("many", i)
			asking.Go(func() {
				if a := p.POST(key, "ttl=30s").settled(); !a.Is(201, "held") {
					t.Errorf("the answer is %v", a)
				}
				if a := p.DELETE(key).settled(); !a.Is(204, "") {
					t.Errorf("the answer is %v", a)
				}
			})
		}
		asking.Wait()
	}
	p.GET("k").Want(t, 200, "")
	for _, series := range []string{`locksidecar_store_errors_total{reason="error"}`, `locksidecar_locks_lost_total{cause="gone"}`} {
		if n := p.Metric(series); n != 0 {
			t.Errorf("%s is %v", series, n)
		}
	}
	if n := p.Metric(`locksidecar_renewals_total{result="failed"}`); n > renewals/2 {
		t.Errorf("%v renewals have failed", n)
	}
}

// It runs alone, for it takes the whole machine; so much that for some
// requests the store's timeout is over too soon.
func TestFiveHundredRequestsAtATimeHoldUpNoRenewal(t *testing.T) {
	const requests, held = 500, 20
	p := on(t, redistest.Start(t))
	for i := range held {
		p.POST(fmt.Sprint("held", i), "ttl=6s").Finally(t, 201, "held")
	}
	var granted, refused atomic.Int64
	for round := 0; p.Metric(`locksidecar_renewals_total{result="ok"}`) < 2*held; round++ {
		if round > 150 {
			t.Fatal("nothing is renewed")
		}
		var asking sync.WaitGroup
		for i := range requests {
			asking.Go(func() {
				key := fmt.Sprintf("k%d.%d", round, i)
				switch a := p.POST(key, "ttl=60s"); {
				case a.Is(201, "held"):
					granted.Add(1)
					p.DELETE(key) // a fast machine would soon have more than may be held
				case a.Is(503, ""):
					refused.Add(1)
				default:
					t.Errorf("the answer is %v", a)
				}
			})
		}
		asking.Wait()
	}
	t.Logf("%d requests were granted meanwhile, %d refused", granted.Load(), refused.Load())
	if granted.Load() < refused.Load()/4 {
		t.Errorf("%d requests were granted and %d refused", granted.Load(), refused.Load())
	}
	for i := range held {
		p.GET(fmt.Sprint("held", i)).Want(t, 200, "")
	}
	// The machine may have stood still for one of the two times that each was renewed.
	if n := p.Metric(`locksidecar_renewals_total{result="failed"}`); n > held {
		t.Errorf("%v renewals have failed", n)
	}
}

func TestRenewalsAndReleasesHaveConnectionsFromTheStart(t *testing.T) {
	t.Parallel()
	p, proxy := through(t, redistest.Start(t))
	eventually(t, 20*time.Second, "all connections are open", func() bool { return proxy.Connections() >= 6 })
	proxy.SetConnect(func(int) faultproxy.Connect { return faultproxy.ConnectReset }) // as with maxclients reached
	p.POST("k", "ttl=3s").Finally(t, 201, "held")
	p.awaitRenewals("k", 2, 15*time.Second)
	p.DELETE("k").Finally(t, 204, "")
}
