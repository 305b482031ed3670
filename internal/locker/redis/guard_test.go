package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const (
	guardTime = 1500 * time.Millisecond
	marker    = testPrefix + "#guard"
)

// openGuarded returns a backend on a server that has been there for longer than
// the guard.
func openGuarded(t testing.TB, server *redistest.Server, config Config) *Backend {
	t.Helper()
	if config.RestartGuard == 0 {
		config.RestartGuard = guardTime
	}
	markOld(t, server, config.RestartGuard)
	return open(t, server, config)
}

// markOld gives a server the marker of one that has not lost data for an hour.
func markOld(t testing.TB, server *redistest.Server, guard time.Duration) {
	t.Helper()
	server.Do("SET", marker, fmt.Sprintf("%s %d %d", runOf(server), guard.Milliseconds(), time.Now().Add(-time.Hour).UnixMicro()))
}

func runOf(server *redistest.Server) string {
	return infoFields(server.Do("INFO", "server"))["run_id"]
}

// guardedClaim is a claim of the longest time that the guard allows.
func guardedClaim(key locker.Key) locker.Claim {
	c := claimFor(key)
	c.Keep = guardTime
	return c
}

// acquireAtLast asks for the key until it is granted and returns when it was
// asked for then. Meanwhile it must be refused as said, if that is.
func acquireAtLast(t testing.TB, b *Backend, key locker.Key, reasons ...locker.StoreReason) (c locker.Claim, asked locker.Instant) {
	t.Helper()
	refused := false
	eventually(t, "the key is granted", func() bool {
		c, asked = guardedClaim(key), locker.BootTime()
		_, err := b.Acquire(t.Context(), c)
		var failure *locker.StoreError
		if errors.As(err, &failure) {
			for _, reason := range reasons {
				refused = refused || failure.Reason == reason
			}
		}
		return err == nil
	})
	if !refused && len(reasons) > 0 {
		t.Errorf("%s was granted and never refused because of %v", key, reasons)
	}
	return c, asked
}

// Whatever takes a server's data away: what it has forgotten is granted to nobody
// before it is over by the reckoning of whoever has it.
func TestAServerThatMayHaveLostItsDataGrantsNothingForAsLongAsALeaseCouldLast(t *testing.T) {
	t.Parallel()
	persisted := []string{"appendonly yes", "appendfsync everysec"}
	for name, c := range map[string]struct {
		directives []string
		lose       func(*redistest.Server)
	}{
		"restarted empty":      {nil, (*redistest.Server).Restart},
		"restarted with data":  {persisted, (*redistest.Server).Restart},
		"FLUSHALL":             {nil, func(s *redistest.Server) { s.Do("FLUSHALL") }},
		"FLUSHDB":              {nil, func(s *redistest.Server) { s.Do("FLUSHDB") }},
		"its marker deleted":   {nil, func(s *redistest.Server) { s.Do("DEL", marker) }},
		"its marker unlike it": {nil, func(s *redistest.Server) { s.Do("SET", marker, "x") }},
		"another type":         {nil, func(s *redistest.Server) { s.Do("DEL", marker); s.Do("RPUSH", marker, "x") }},
		"another run's data": {nil, func(s *redistest.Server) {
			s.Do("SET", marker, fmt.Sprintf("%040x %d %d", 1, guardTime.Milliseconds(), time.Now().Add(-time.Hour).UnixMicro()))
		}},
		"its clock set back": {nil, func(s *redistest.Server) {
			s.Do("SET", marker, fmt.Sprintf("%s %d %d", runOf(s), guardTime.Milliseconds(), time.Now().Add(time.Hour).UnixMicro()))
		}},
		"a replica for a while": {nil, func(s *redistest.Server) {
			s.Do("REPLICAOF", "127.0.0.1", "1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, c.directives...)
			b := openGuarded(t, server, Config{})
			held, other := guardedClaim("held"), guardedClaim("other")
			mustAcquire(t, b, other)
			since := locker.BootTime()
			mustAcquire(t, b, held)
			end := since.Add(guardTime) // no lease of it lasts longer
			c.lose(server)
			if strings.HasPrefix(name, "a replica") {
				_, err := b.Acquire(t.Context(), guardedClaim("refused"))
				wantStoreError(t, "a claim at a replica", err, locker.StoreUnavailable, true)
				server.Do("REPLICAOF", "NO", "ONE")
			}

			next, asked := acquireAtLast(t, b, "free", locker.StoreRecovering)
			if asked < end && locker.BootTime() < end {
				t.Errorf("granted %v before a lost lease could be over", end.Sub(asked))
			}
			again, _ := b.Acquire(t.Context(), next)
			if again.Fence == 0 {
				t.Error("a claim sent again is not recognised")
			}
			if left, err := b.Guard(t.Context()); left != 0 || err != nil {
				t.Errorf("then %v are left, %v", left, err)
			}
		})
	}
}

// What is held goes on, and what is healed is put back, while nothing is granted.
func TestAGuardedServerRenewsReleasesAndHealsMeanwhile(t *testing.T) {
	server := redistest.Start(t)
	b := openGuarded(t, server, Config{RestartGuard: time.Hour})
	kept, given, waiting := claimFor("kept"), claimFor("given"), claimFor("waiting")
	for _, c := range []locker.Claim{kept, given, waiting} {
		mustAcquire(t, b, c)
	}
	server.Do("DEL", marker)
	_, err := b.Acquire(t.Context(), claimFor("new"))
	wantStoreError(t, "a new claim", err, locker.StoreRecovering, true)
	_, err = b.AcquireInLine(t.Context(), claimFor("new"), turnOf("p"))
	wantStoreError(t, "a new claim in line", err, locker.StoreRecovering, true)
	var held *locker.HeldError
	if _, err := b.Acquire(t.Context(), claimFor("kept")); !errors.As(err, &held) {
		t.Errorf("a claim for what is held: %v, want held", err)
	}
	if again := mustAcquire(t, b, kept); again.Fence == 0 {
		t.Error("a claim sent again is not recognised")
	}
	if err := renewOne(t.Context(), b, kept); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := releaseOne(t.Context(), b, given); err != nil {
		t.Errorf("release: %v", err)
	}
	verdict, _, err := b.HandOver(t.Context(), surrenderOf(waiting), claimFor("waiting"), turnOf("p"))
	if verdict.Err != nil {
		t.Errorf("the release of a hand-over: %v", verdict.Err)
	}
	wantStoreError(t, "the grant of a hand-over", err, locker.StoreRecovering, true)
	lost := claimFor("lost")
	remedy := locker.Remedy{Key: lost.Key, Token: lost.Token, Fence: 1, Keep: time.Minute, NotAfter: soon()}
	if v := b.Heal(t.Context(), []locker.Remedy{remedy}); v[0].Err != nil {
		t.Errorf("heal: %v", v[0].Err)
	}
	if left, err := b.Guard(t.Context()); err != nil || left < 59*time.Minute || left > time.Hour {
		t.Errorf("%v are left, %v", left, err)
	}
}

func turnOf(process string) locker.Turn {
	return locker.Turn{Process: process, Call: 1, WaitLeft: time.Minute}
}

// The time runs from when the loss is noticed by anybody, who may not want a
// lock; it does not begin anew with each who asks.
func TestTheGuardsTimeRunsForAllFromTheFirstWhoNotices(t *testing.T) {
	server := redistest.Start(t)
	first := open(t, server, Config{RestartGuard: time.Hour})
	if err := first.Warm(t.Context()); err != nil { // connects, and asks for nothing
		t.Fatal(err)
	}
	before, _ := server.Get(marker)
	if !strings.HasPrefix(before, runOf(server)+" 3600000 ") {
		t.Fatalf("the marker is %q", before)
	}
	second := open(t, server, Config{RestartGuard: time.Hour})
	for _, b := range []*Backend{first, second, first} {
		_, err := b.Acquire(t.Context(), claimFor(testKey))
		wantStoreError(t, "acquire", err, locker.StoreRecovering, true)
	}
	if after, _ := server.Get(marker); after != before {
		t.Errorf("the marker was %q and is %q", before, after)
	}
	if server.PTTL(marker) != redistest.NoTTL {
		t.Error("the marker has a time to live")
	}
}

// A replica that is promoted may lack the latest grants. Its data has the old
// master's marker.
func TestAPromotedReplicaGrantsNothingForAWhile(t *testing.T) {
	r := redistest.Config{}.StartReplicated(t, 1)
	master, replica := r.Servers[0], r.Servers[1]
	b := openGuarded(t, master, Config{})
	mustAcquire(t, b, guardedClaim(testKey))
	r.AwaitReplicas(master, 1)
	promoted := open(t, replica, Config{RestartGuard: guardTime})
	_, err := promoted.Acquire(t.Context(), guardedClaim("free"))
	wantStoreError(t, "a claim at the replica", err, locker.StoreUnavailable, true)
	master.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	acquireAtLast(t, promoted, "free", locker.StoreRecovering)
}

func TestAFailoverBehindSentinelsIsGuarded(t *testing.T) {
	s := redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	markOld(t, s.Master(), guardTime)
	b := openSentinel(t, s, Config{RestartGuard: guardTime})
	eventually(t, "the master is found", func() bool { return b.Ping(t.Context()) == nil })
	since := locker.BootTime()
	mustAcquire(t, b, guardedClaim(testKey))
	next := s.Failover()
	eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
	_, asked := acquireAtLast(t, b, "free")
	if end := since.Add(guardTime); asked < end {
		t.Errorf("granted %v before a lost lease could be over", end.Sub(asked))
	}
	if value, _ := next.Get(marker); !strings.HasPrefix(value, runOf(next)+" ") {
		t.Errorf("the marker is %q, want that of the new master's run", value)
	}
}

// Who waits for a shorter time than another holds locks must not go on.
func TestGuardsThatDifferAreRefused(t *testing.T) {
	server := redistest.Start(t)
	openGuarded(t, server, Config{RestartGuard: time.Hour})
	before, _ := server.Get(marker)
	b := open(t, server, Config{RestartGuard: time.Minute})
	_, err := b.Guard(t.Context())
	var differs *GuardError
	if !errors.As(err, &differs) || !strings.Contains(differs.Error(), "3600000 ms") {
		t.Errorf("the guard: %v, want a *GuardError that tells the other's", err)
	}
	_, err = b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreFailed, true)
	if after, _ := server.Get(marker); after != before {
		t.Errorf("the marker was %q and is %q", before, after)
	}
}

func TestWithoutINFOAGuardedServerGrantsNothing(t *testing.T) {
	server := redistest.Start(t)
	b := openGuarded(t, server, Config{})
	c := guardedClaim(testKey)
	c.Keep = time.Minute
	mustAcquire(t, b, c)
	before, _ := server.Get(marker)
	server.Do("ACL", "SETUSER", "default", "-info")
	server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	eventually(t, "it is refused", func() bool {
		_, err := b.Acquire(t.Context(), guardedClaim("other"))
		var failure *locker.StoreError
		return errors.As(err, &failure) && failure.Reason == locker.StoreAuthFailed && failure.Certain
	})
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew: %v", err)
	}
	if after, _ := server.Get(marker); after != before {
		t.Errorf("the marker was %q and is %q: others would have to wait", before, after)
	}
}

func TestAClusterCannotBeGuarded(t *testing.T) {
	if _, err := New(Config{Kind: Cluster, Addrs: []Address{Unix("/x")}, RestartGuard: time.Minute}); err == nil {
		t.Error("it was accepted")
	}
}

func TestAGuardedBackendConforms(t *testing.T) {
	server := redistest.Start(t)
	markOld(t, server, time.Hour)
	old, _ := server.Get(marker)
	var cases atomic.Int64
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		prefix := fmt.Sprintf("case%d:", cases.Add(1))
		server.Do("SET", prefix+"#guard", old)
		h := harness(open(t, server, Config{KeyPrefix: prefix, RestartGuard: time.Hour}), func(string) *redistest.Server { return server }, server)
		h.Wipe = func() {
			for _, name := range server.Keys(prefix + "*") {
				if name != prefix+"#guard" {
					server.Do("DEL", name)
				}
			}
		}
		return h
	})
}

// A caller who has left marks nothing.
func TestTheGuardAsksNothingForWhoHasLeft(t *testing.T) {
	server := redistest.Start(t)
	b := open(t, server, Config{RestartGuard: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Guard(ctx); err == nil {
		t.Error("it was answered")
	}
	if left, err := open(t, server, Config{}).Guard(t.Context()); left != 0 || err != nil {
		t.Errorf("without a guard: %v, %v", left, err)
	}
	if value, ok := server.Get(marker); ok {
		t.Errorf("the marker is %q", value)
	}
}
