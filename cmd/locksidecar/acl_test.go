package main

import (
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

const aclPassword = "pw-of-the-sidecar"

func permit(t *testing.T, servers []*redistest.Server, names ...string) {
	t.Helper()
	for _, r := range servers {
		for _, name := range names {
			r.SetUser("locksidecar", append(redistest.DocumentedACL(t, name), ">"+aclPassword)...)
		}
	}
}

// wantNothingDenied fails the test if the sidecar's user has missed a
// permission.
func wantNothingDenied(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, r := range servers {
		if denied := r.Denied(); len(denied) > 0 {
			t.Errorf("%q were denied", denied)
		}
	}
}

// usesAll has two sidecars do all that needs the store.
func usesAll(t *testing.T, a, b *proc) {
	t.Helper()
	first := a.POST("k", "ttl=2s", "note=n").Finally(t, 201, "held")
	waiter := b.ask("k", "wait=20s")
	a.awaitRenewals("k", 1, 10*time.Second)
	a.PATCH("k", "note=m").Finally(t, 200, "held")
	b.GET("k")
	a.giveBack("k", first).Finally(t, 204, "")
	second := (<-waiter).Want(t, 201, "held")
	wantFenceAbove(t, second, first)
	b.giveBack("k", second).Finally(t, 204, "")
	a.POST("cron", "ttl=1s", "min_hold=1s").Finally(t, 201, "held")
	a.DELETE("cron").Finally(t, 204, "")
}

func TestAQuorumNeedsNoMorePermissionsThanOneServerAndItsGuard(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	permit(t, m, "single", "checks") // INFO is what the guard needs
	env := []string{"REDIS_USERNAME=locksidecar", "REDIS_PASSWORD=" + aclPassword}
	a, b := m.on(t, env...), m.on(t, env...)
	usesAll(t, a, b)
	held := a.POST("healed", "ttl=2s").Finally(t, 201, "held")
	m[0].Do("FLUSHALL")
	eventually(t, 10*time.Second, "the lock is put back", func() bool { return m[0].Do("EXISTS", "lock:healed") == int64(1) })
	a.giveBack("healed", held).Finally(t, 204, "")
	wantNothingDenied(t, m)
}

func TestBehindSentinelsTheDocumentedPermissionsSuffice(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	permit(t, s.Servers, "sentinel", "checks")
	permit(t, s.Sentinels, "at-sentinels")
	env := []string{
		"REDIS_MODE=sentinel", "SENTINEL_MASTER=" + s.Name, "REDIS_ADDRS=" + strings.Join(s.Addrs(), ","),
		"REDIS_USERNAME=locksidecar", "REDIS_PASSWORD=" + aclPassword,
		"SENTINEL_USERNAME=locksidecar", "SENTINEL_PASSWORD=" + aclPassword,
	}
	a, b := startSidecar(t, env...), startSidecar(t, env...)
	a.awaitReady()
	b.awaitReady()
	usesAll(t, a, b)
	s.Failover()
	usesAfterwards := func() bool { return a.POST("later").Status == 201 }
	eventually(t, 20*time.Second, "a grant by the next master", usesAfterwards)
	wantNothingDenied(t, s.Sentinels)
	wantNothingDenied(t, s.Servers)
}
