package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// cutOff makes the proxy swallow everything.
func cutOff(proxy *faultproxy.Proxy) {
	proxy.SetConnect(func(int) faultproxy.Connect { return faultproxy.ConnectBlackHole })
	proxy.SetRule(func(faultproxy.Command) faultproxy.Action { return faultproxy.Action{BlackHole: true} })
}

// heal ends that.
func heal(proxy *faultproxy.Proxy) {
	proxy.SetConnect(nil)
	proxy.SetRule(nil)
	proxy.Cut()
}

func TestALateHolderCannotFreeTheNextOnesLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, proxy := through(t, r)
	s2, s3 := on(t, r), on(t, r)
	s1.POST("k", "ttl=1s").Finally(t, 201, "held")
	cutOff(proxy)
	var granted answer
	eventually(t, 10*time.Second, "the lock has expired", func() bool {
		granted = s2.POST("k", "ttl=60s")
		return granted.Status == http.StatusCreated
	})
	heal(proxy)
	s1.DELETE("k").Want(t, 410, "lost")
	s3.POST("k").Finally(t, 409, "held")
	s2.GET("k").Want(t, 200, "held")
	if a := s1.GET("k"); a.Status != http.StatusNotFound {
		t.Errorf("once told, the loss is still told: %v", a)
	}
}

func TestALostLockAndAnUnconfirmedReleaseAreToldApart(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	p.POST("lost", "ttl=1s").Finally(t, 201, "held")
	p.POST("kept", "ttl=30s").Finally(t, 201, "held")
	cutOff(proxy)
	p.awaitLost("lost", time.Second+unevenness, locker.CauseExpired)
	p.DELETE("lost").Want(t, 410, "lost")
	unconfirmed := p.DELETE("kept").Want(t, 503, "release_unconfirmed")
	if left := unconfirmed.JSON.FreeWithinMS; left <= 0 || left > 31_000 {
		t.Errorf("it is said to be free within %d ms", left)
	}
	p.GET("kept").Want(t, 404, "not_held")
	for series, want := range map[string]float64{
		`locksidecar_locks_lost_total{cause="expired"}`:        1,
		`locksidecar_releases_total{result="unconfirmed"}`:     1,
		`locksidecar_releases_total{result="released"}`:        0,
		`locksidecar_releases_total{result="not_ours"}`:        0,
		`locksidecar_acquires_total{result="granted"}`:         2,
		`locksidecar_locks_held`:                               0,
		`locksidecar_store_errors_total{reason="auth_failed"}`: 0,
	} {
		if got := p.Metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	heal(proxy)
	awaitFree(t, r, "kept", 10*time.Second)
	p.DELETE("kept").Finally(t, 204, "") // tells how it went, once
	p.DELETE("kept").Want(t, 404, "not_held")
}

func TestFromTheMomentOfDeleteNobodyIsToldThatTheLockIsHeld(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, proxy := through(t, r)
	s2 := on(t, r)
	s1.POST("k", "ttl=30s").Finally(t, 201, "held")
	proxy.SetRule(always("release", "k", faultproxy.Action{ReplyDelay: storeTimeout * 2 / 3}))
	arrived := proxy.Counts()["EVALSHA"]
	released := make(chan answer, 1)
	go func() { released <- s1.DELETE("k") }()
	eventually(t, 5*time.Second, "the release is on its way", func() bool { return proxy.Counts()["EVALSHA"] > arrived })
	granted := false
	eventually(t, 10*time.Second, "another has the lock, and the release is answered", func() bool {
		if a := s1.GET("k"); a.Status == http.StatusOK {
			t.Fatalf("the lock is told to be held after DELETE was accepted: %v", a)
		}
		granted = granted || s2.POST("k", "ttl=30s").Status == http.StatusCreated
		return granted && len(released) > 0
	})
	if a := <-released; !a.Is(204, "") && !a.Is(503, "release_unconfirmed") {
		t.Errorf("the release is answered %v", a)
	}
	s2.GET("k").Want(t, 200, "held")
}

func TestAReleaseWhoseReplyIsLateSaysWhatHappensNext(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	for i, action := range []faultproxy.Action{{ReplyDelay: 2 * storeTimeout}, {LoseReply: true}, {BlackHole: true}} {
		key := fmt.Sprint("k", i)
		p.POST(key, "ttl=30s").Finally(t, 201, "held")
		proxy.SetRule(always("release", key, action))
		a := p.DELETE(key).Want(t, 503, "release_unconfirmed")
		wantInTime(t, a, storeTimeout)
		if left := a.JSON.FreeWithinMS; left <= 0 || left > 31_000 {
			t.Errorf("%+v: it is said to be free within %d ms", action, left)
		}
		proxy.SetRule(nil)
		awaitFree(t, r, key, 10*time.Second)
		eventually(t, 10*time.Second, "a repeated DELETE tells the end", func() bool {
			again := p.DELETE(key)
			return again.Is(204, "") || again.Is(404, "not_held")
		})
	}
}

func TestOneFailedRenewalEndsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	h := p.POST("k", "ttl=9s").Finally(t, 201, "held")
	token, _ := r.Get("lock:k")
	cutOff(proxy)
	at := p.awaitState("k", 10*time.Second, 200, "at_risk")
	eventually(t, 5*time.Second, "several renewals have failed", func() bool {
		wantValue(t, r, "k", token)
		return p.Metric(`locksidecar_renewals_total{result="failed"}`) >= 2
	})
	heal(proxy)
	back := p.awaitState("k", 10*time.Second, 200, "held")
	if back.JSON.Fence != h.JSON.Fence || back.JSON.ValidUntilMS <= at.JSON.ValidUntilMS {
		t.Errorf("the lock is %v, was %v", back, h)
	}
	wantValue(t, r, "k", token)
}
