package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// handOverAll has callers of all sidecars wait for a lock, and gives it on from
// one to the next, each time after before has returned. None may have to wait
// for longer than it takes to ask without being woken.
func handOverAll(t *testing.T, r *redistest.Server, each int, before func(), sidecars ...*proc) {
	t.Helper()
	holder := sidecars[0]
	held := holder.POST("k", "ttl=60s").Finally(t, 201, "held")
	type grant struct {
		by *proc
		answer
	}
	grants := make(chan grant)
	for range each {
		for _, p := range sidecars {
			got := p.enter(r, "k", "ttl=60s", "wait=18s")
			go func() { grants <- grant{p, <-got} }()
		}
	}
	for i := range each * len(sidecars) {
		before()
		holder.giveBack("k", held).Finally(t, 204, "")
		began := time.Now()
		next := <-grants
		next.Want(t, 201, "held")
		if took := time.Since(began); took > pollBound {
			t.Errorf("hand-over %d took %v", i, took)
		}
		holder, held = next.by, next.answer
	}
	holder.giveBack("k", held).Finally(t, 204, "")
}

func TestLocksAreHandedOverThoughTheSubscriptionsAreCutAllTheTime(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	one, two := on(t, r), on(t, r)
	ctx, stop := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	var cut atomic.Int64
	c := r.Dial()
	cutting.Go(func() {
		defer c.Close()
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			n, err := c.Do("CLIENT", "KILL", "TYPE", "pubsub")
			if err != nil {
				t.Error(err)
				return
			}
			cut.Add(n.(int64))
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	handOverAll(t, r, 4, func() {
		before := cut.Load()
		eventually(t, 5*time.Second, "a subscription is cut", func() bool { return cut.Load() > before })
	}, one, two)
	stop()
	cutting.Wait()
}

func TestWithoutPermissionToPublishWaitersPollAndTheLogSaysSoOnce(t *testing.T) {
	t.Parallel()
	const password = "the-password-of-app"
	for name, denied := range map[string]string{"PUBLISH": "-publish", "SUBSCRIBE": "-subscribe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			setUser(r, "~lock:*", "&lock:*", "+@all", denied, ">"+password)
			login := []string{"REDIS_USERNAME=app", "REDIS_PASSWORD=" + password}
			one, two := on(t, r, login...), on(t, r, login...)
			handOverAll(t, r, 2, func() {}, one, two)
			for _, p := range []*proc{one, two} {
				warned := 0
				for line := range strings.Lines(p.Log()) {
					if strings.Contains(line, "polling alone") {
						warned++
					}
				}
				if warned != 1 {
					t.Errorf("the log warns %d times", warned)
				}
			}
		})
	}
}

func TestASubscriptionThatIsNeverConfirmedHoldsUpNoWaiter(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	other := on(t, r)
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		return faultproxy.Action{BlackHole: c.Name == "SUBSCRIBE"}
	})
	handOverAll(t, r, 2, func() {}, other, p)
	if proxy.Counts()["SUBSCRIBE"] == 0 {
		t.Error("nothing was to be confirmed")
	}
}

func TestTryOnceSubscribesToNothingHoweverSlowTheStoreIs(t *testing.T) {
	t.Parallel()
	p, proxy := through(t, redistest.Start(t))
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		return faultproxy.Action{BlackHole: runs(c, "acquire", "")}
	})
	for i := range 5 {
		a := p.POST(fmt.Sprint("k", i), "wait=0s")
		if a.Status != 503 {
			t.Errorf("the answer is %v", a)
		}
		wantInTime(t, a, storeTimeout+unevenness)
	}
	if n := proxy.Counts()["SUBSCRIBE"]; n != 0 {
		t.Errorf("%d subscriptions were made", n)
	}
}

// While the store is in trouble, a wait goes on, and so does its place.
func TestAWaiterOutlivesARedisThatStandsStill(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	one, two := on(t, r), on(t, r)
	held := one.POST("k", "ttl=60s").Finally(t, 201, "held")
	got := two.enter(r, "k", "ttl=60s", "wait=15s")
	r.Stop()
	timer := time.NewTimer(1500 * time.Millisecond) // for the fault to last
	defer timer.Stop()
	select {
	case a := <-got:
		t.Fatalf("the wait has ended: %v", a)
	case <-timer.C:
	}
	r.Cont()
	one.awaitState("k", 5*time.Second, 200, "held")
	one.giveBack("k", held).Finally(t, 204, "")
	began := time.Now()
	(<-got).Want(t, 201, "held")
	if took := time.Since(began); took > pollBound {
		t.Errorf("it was granted after %v", took)
	}
}
