package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestAGrantTellsHowManyReplicasHaveIt(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 2)
	for n := 1; n <= 2; n++ {
		b := open(t, r.Servers[0], Config{MinReplicas: n, KeyPrefix: fmt.Sprint("n", n, ":")})
		c := claimFor(testKey)
		if grant := mustAcquire(t, b, c); grant.Acked < n || grant.Acked > 2 {
			t.Errorf("%d replicas have it, want at least %d", grant.Acked, n)
		}
		have := 0
		for _, replica := range r.Replicas(r.Servers[0]) {
			if v, ok := replica.Get(b.keys.lock(testKey)); ok && v == c.Token.Reveal() {
				have++
			}
		}
		if have < n {
			t.Errorf("%d replicas have the lock, want at least %d", have, n)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
		cycleElsewhere(t, b)
	}
	b := open(t, r.Servers[0], Config{})
	if grant := mustAcquire(t, b, claimFor(testKey)); grant.Acked != 0 {
		t.Errorf("%d replicas are told of, though nobody waits for any", grant.Acked)
	}
}

// cycleElsewhere uses all of a Backend, but for what another's test key has.
func cycleElsewhere(t *testing.T, b *Backend) {
	t.Helper()
	_ = releaseOne(t.Context(), b, claimFor(testKey))
	waitAndLeave(t, b)
	for i := range 300 {
		c := claimFor(locker.Key(fmt.Sprint("many", i)))
		if i == 0 {
			mustAcquire(t, b, c)
		}
		v := b.Renew(t.Context(), []locker.Renewal{renewalOf(c)})[0]
		if i == 0 && v.Err != nil || i > 0 && !errors.Is(v.Err, locker.ErrGone) {
			t.Errorf("renew: %v", v.Err)
		}
	}
}

func TestAGrantThatTooFewReplicasHaveIsUndone(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	master, replica := r.Servers[0], r.Servers[1]
	const timeout = 2 * time.Second
	b := open(t, master, Config{MinReplicas: 1, StoreTimeout: timeout})
	patient := open(t, master, Config{MinReplicas: 1, StoreTimeout: 10 * time.Second})
	held, verified := claimFor("held"), claimFor("verified")
	mustAcquire(t, patient, held)
	mustAcquire(t, patient, verified)
	holder := claimFor("handed")
	mustAcquire(t, patient, holder)
	w := newWaiter(b, "p")
	inLine := w.join(t, "handed")
	replica.Stop()

	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreNotReplicated, true)
	if _, ok := master.Get(lockName); ok {
		t.Error("the lock is still there")
	}
	_, err = b.AcquireInLine(t.Context(), claimFor("also"), locker.Turn{Process: "p", Call: 1, WaitLeft: time.Minute})
	wantStoreError(t, "acquire in line", err, locker.StoreNotReplicated, true)
	verdict, _, err := b.HandOver(t.Context(), surrenderOf(holder), inLine, w.turn())
	if verdict.Err != nil {
		t.Errorf("the lock was not given back: %v", verdict.Err)
	}
	wantStoreError(t, "be handed", err, locker.StoreNotReplicated, true)
	if _, ok := master.Get(b.keys.lock("handed")); ok {
		t.Error("the lock that was handed over is still there")
	}

	verify := renewalOf(verified)
	verify.Keep = 0
	verdicts := b.Renew(t.Context(), []locker.Renewal{renewalOf(held), verify, renewalOf(claimFor("gone"))})
	wantStoreError(t, "renew", verdicts[0].Err, locker.StoreNotReplicated, false)
	if verdicts[1].Err != nil || !errors.Is(verdicts[2].Err, locker.ErrGone) {
		t.Errorf("verify: %v, renew a lock that is gone: %v", verdicts[1].Err, verdicts[2].Err)
	}
	// Whoever is refused, gives back or looks needs no replica.
	since := time.Now()
	if _, err := b.Inspect(t.Context(), "held"); err != nil {
		t.Errorf("inspect: %v", err)
	}
	if err := releaseOne(t.Context(), b, verified); err != nil {
		t.Errorf("release: %v", err)
	}
	if took := time.Since(since); took > timeout/2 {
		t.Logf("it took %v", took)
	}
	wantStoreError(t, "ping", b.Ping(t.Context()), locker.StoreNotReplicated, true)

	replica.Cont()
	eventually(t, "the replica is back", func() bool { return b.Ping(t.Context()) == nil })
	if err := renewOne(t.Context(), patient, held); err != nil {
		t.Errorf("renew: %v", err)
	}
	mustAcquire(t, patient, claimFor(testKey))
	w.b = patient
	w.get(t, claimFor("handed"))
}

// The first answer is lost, and the claim is sent again over another connection,
// where it writes nothing.
func TestARepeatedClaimIsAcknowledgedAsTheFirst(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	proxy := faultproxy.Start(t, "tcp", r.Servers[0].Addr())
	b := open(t, r.Servers[0], Config{Addrs: []Address{TCP(proxy.Addr())}, MinReplicas: 1, StoreTimeout: 3 * time.Second})
	mustAcquire(t, b, claimFor("another")) // so that the script is known
	c := claimFor(testKey)
	r.Servers[1].Stop()
	proxy.SetRule(nthCommand("EVALSHA", 1, faultproxy.Action{LoseReply: true}))
	_, err := b.Acquire(t.Context(), c)
	wantStoreError(t, "acquire", err, locker.StoreBroken, false)
	if _, ok := r.Servers[0].Get(lockName); !ok {
		t.Fatal("the claim was not carried out")
	}
	_, err = b.Acquire(t.Context(), c)
	wantStoreError(t, "the same again", err, locker.StoreNotReplicated, true)
}

// From Redis 7.2 on a WAIT counts who has what its own connection has written.
func TestWhatIsCountedIsWrittenEachTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	for what, do := range map[string]func() error{
		"a claim that is repeated": func() error { _, err := b.Acquire(t.Context(), c); return err },
		"a renewal":                func() error { return renewOne(t.Context(), b, c) },
	} {
		mustAcquire(t, b, c)
		record := server.PTTL(b.keys.record(testKey))
		before := infoFields(server.Do("INFO", "persistence"))["rdb_changes_since_last_save"]
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if infoFields(server.Do("INFO", "persistence"))["rdb_changes_since_last_save"] == before {
			t.Errorf("%s writes nothing", what)
		}
		if now := server.PTTL(b.keys.record(testKey)); now < record-time.Second {
			t.Errorf("%s: the record lives for %v, before for %v", what, now, record)
		}
	}
}

// The grant is known, and then the connection ends before the replicas are.
func TestAGrantOfWhichNoCountComesIsUndone(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	proxy := faultproxy.Start(t, "tcp", r.Servers[0].Addr())
	b := open(t, r.Servers[0], Config{Addrs: []Address{TCP(proxy.Addr())}, MinReplicas: 1, StoreTimeout: 2 * time.Second})
	mustAcquire(t, b, claimFor("another"))
	proxy.SetRule(nthCommand("WAIT", 1, faultproxy.Action{Reset: true}))
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	var failure *locker.StoreError
	if !errors.As(err, &failure) || failure.Certain && failure.Reason != locker.StoreNotReplicated {
		t.Errorf("acquire: %v", err)
	}
	if _, ok := r.Servers[0].Get(lockName); ok && failure.Certain {
		t.Error("the lock is still there")
	}
	mustAcquire(t, b, claimFor("a third"))
}

func TestForgottenScriptsDoNotSpoilAcknowledgements(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	b := open(t, r.Servers[0], Config{MinReplicas: 1})
	for i := range 3 {
		r.Servers[0].Do("SCRIPT", "FLUSH")
		r.Servers[0].Stop()
		var asking sync.WaitGroup
		for j := range 50 {
			asking.Go(func() {
				if grant := mustAcquire(t, b, claimFor(locker.Key(fmt.Sprint(i, "/", j)))); grant.Acked != 1 {
					t.Errorf("%d replicas have it, want 1", grant.Acked)
				}
			})
		}
		r.Servers[0].Cont()
		asking.Wait()
	}
}

func TestWithoutPermissionToWaitNothingIsGranted(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	permit(t, r.Servers[:1], "single")
	b := open(t, r.Servers[0], Config{MinReplicas: 1, Username: value("locksidecar"), Password: value(password)})
	wantStoreError(t, "ping", b.Ping(t.Context()), locker.StoreAuthFailed, true)
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreAuthFailed, true)
	if keys := r.Servers[0].Keys("lock:k"); len(keys) != 0 {
		t.Error("the lock is there")
	}
	permit(t, r.Servers[:1], "replicas")
	mustAcquire(t, b, claimFor(testKey))
}

func TestReplicasAreWaitedForBehindSentinelsAndInClusters(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{}.StartCluster(t)
	b := openCluster(t, c, Config{MinReplicas: 1})
	keys := make(map[*redistest.Server]locker.Key)
	for _, master := range c.Nodes[:3] {
		keys[master] = keysOf(t, b, master, 1)[0]
		if grant := mustAcquire(t, b, claimFor(keys[master])); grant.Acked != 1 {
			t.Errorf("%d replicas have it, want 1", grant.Acked)
		}
	}
	// One master's replica is gone: its locks alone cannot be granted.
	c.ReplicasOf(c.Nodes[0])[0].Stop()
	for _, master := range c.Nodes[:3] {
		key := keysOf(t, b, master, 2)[1]
		_, err := b.Acquire(t.Context(), claimFor(key))
		if master == c.Nodes[0] {
			wantStoreError(t, "acquire", err, locker.StoreNotReplicated, true)
			if _, ok := master.Get(b.keys.lock(key)); ok {
				t.Error("the lock is still there")
			}
		} else if err != nil {
			t.Errorf("acquire at another master: %v", err)
		}
	}

	s := redistest.SentinelConfig{Replicas: 2}.StartSentinel(t)
	b = openSentinel(t, s, Config{MinReplicas: 1})
	mustAcquire(t, b, claimFor("before"))
	next := s.Failover()
	attempts := 0
	eventually(t, "a grant after the failover", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		attempts++ // a key of its own for each: one whose answer is lost stays taken
		_, err := b.Acquire(ctx, claimFor(locker.Key(fmt.Sprint("after", attempts))))
		return err == nil
	})
	if !masterIs(b, next) || !strings.HasPrefix(next.Do("INFO", "replication").(string), "#") {
		t.Error("it was granted elsewhere")
	}
}
