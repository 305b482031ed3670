package redis

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// demote makes a replica of a server, of a master that is not there. It keeps
// its data and its connections.
func demote(server *redistest.Server) { server.Do("REPLICAOF", "127.0.0.1", "1") }

func promote(server *redistest.Server) { server.Do("REPLICAOF", "NO", "ONE") }

func TestNoAnswerOfAReplicaIsTakenForOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	held, gone := claimFor("held"), claimFor("gone")
	mustAcquire(t, b, held)
	mustAcquire(t, b, gone)
	demoted := func() {
		t.Helper()
		refused := func(what string, err error) {
			t.Helper()
			wantStoreError(t, what, err, locker.StoreUnavailable, true)
		}
		for _, key := range []locker.Key{"held", "gone", "free"} {
			_, err := b.Acquire(t.Context(), claimFor(key))
			refused("acquire "+string(key), err)
			turn := locker.Turn{Process: "p", Call: 1, WaitLeft: time.Minute}
			_, err = b.AcquireInLine(t.Context(), claimFor(key), turn)
			refused("acquire "+string(key)+" in line", err)
			_, err = b.Inspect(t.Context(), key)
			refused("inspect "+string(key), err)
			refused("leave "+string(key), b.Leave(t.Context(), key, turn))
		}
		_, err := b.Acquire(t.Context(), held)
		refused("acquire again", err)
		for _, c := range []locker.Claim{held, gone, claimFor("free")} {
			verify := renewalOf(c)
			verify.Keep = 0
			for _, v := range b.Renew(t.Context(), []locker.Renewal{renewalOf(c), verify}) {
				refused("renew "+string(c.Key), v.Err)
			}
			refused("verify "+string(c.Key), b.Renew(t.Context(), []locker.Renewal{verify})[0].Err)
			refused("annotate "+string(c.Key), b.Annotate(t.Context(), c.Key, c.Token, "note"))
			refused("release "+string(c.Key), releaseOne(t.Context(), b, c))
			refused("heal "+string(c.Key), b.Heal(t.Context(), []locker.Remedy{{Key: c.Key, Token: c.Token, Keep: c.Keep, Fence: 1, NotAfter: soon()}})[0].Err)
			_, err := b.Raise(t.Context(), locker.Raising{Key: c.Key, Token: c.Token, Fence: 1, NotAfter: soon()})
			refused("raise "+string(c.Key), err)
			v, _, err := b.HandOver(t.Context(), surrenderOf(c), claimFor(c.Key), locker.Turn{Process: "p", Number: 1, Call: 2})
			refused("hand over "+string(c.Key), v.Err)
			refused("be handed "+string(c.Key), err)
		}
	}
	server.Do("DEL", b.keys.lock(gone.Key)) // as a replica that lags may have it
	demote(server)
	demoted()
	server.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	demoted()
	promote(server)
	if err := renewOne(t.Context(), b, held); err != nil {
		t.Errorf("renew on the master: %v", err)
	}
}

func TestAnAddressThatLeadsToAnotherServerIsFollowedWithinACall(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	service := faultproxy.Start(t, "tcp", old.Addr())
	b := open(t, old, Config{Addrs: []Address{TCP(service.Addr())}})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := newWaiter(b, "p")
	w.listen(t)
	c := claimFor(testKey)
	mustAcquire(t, b, c)

	// As a Service does that leads to the new master: connections stay.
	service.Lead(next.Addr())
	demote(old)
	mustAcquire(t, b, claimFor("another")) // at once, and so on the connections that were idle
	mustAcquire(t, b, claimFor("a third"))
	if _, ok := next.Get(b.keys.lock("a third")); !ok {
		t.Error("the lock is not on the new master")
	}
	if v := b.Renew(t.Context(), []locker.Renewal{renewalOf(c)})[0]; v.Err != locker.ErrGone {
		t.Errorf("renew: %v, want gone", v.Err)
	}
	w.await(t, locker.HintListening) // there
	next.Do("PUBLISH", b.keys.channel(w.name), "wk")
	w.await(t, locker.HintWake)
}
