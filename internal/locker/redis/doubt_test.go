package redis

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// wantRecovering claims a lock that nobody has, of a server that may have lost
// data. No other refusal is met on the way.
func wantRecovering(t *testing.T, what string, b *Backend) {
	t.Helper()
	_, err := b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, what, err, locker.StoreRecovering, true)
}

// A server that was a replica meanwhile has the marker of its own run. That it is
// not to be trusted is known to us alone, for as long as it takes no note of it.
func TestADoubtThatCannotBeWrittenDownIsNotForgotten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ off, on []any }{
		"too few replicas": {[]any{"min-replicas-to-write", "1"}, []any{"min-replicas-to-write", "0"}},
		"no memory":        {[]any{"maxmemory", "1"}, []any{"maxmemory", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := openGuarded(t, server, Config{RestartGuard: time.Hour})
			held := claimFor("held")
			mustAcquire(t, b, held)
			demote(server)
			_, err := b.Acquire(t.Context(), claimFor("free"))
			wantStoreError(t, "at a replica", err, locker.StoreUnavailable, true)
			server.Do(slices.Concat([]any{"CONFIG", "SET"}, c.off)...)
			promote(server)
			for range 3 {
				_, err := b.Acquire(t.Context(), claimFor("free"))
				wantStoreError(t, "while it refuses writes", err, locker.StoreWriteRefused, true)
			}
			if name == "no memory" {
				if err := renewOne(t.Context(), b, held); err != nil {
					t.Errorf("renew without memory: %v", err)
				}
			}
			server.Do(slices.Concat([]any{"CONFIG", "SET"}, c.on)...)
			wantRecovering(t, "once it takes them", b)
			if err := renewOne(t.Context(), b, held); err != nil {
				t.Errorf("renew: %v", err)
			}
		})
	}
}

// What others have agreed on is not deleted, not even for want of memory.
func TestADoubtLeavesTheGuardOfOthersAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	markOld(t, server, time.Hour)
	b := open(t, server, Config{RestartGuard: time.Minute})
	demote(server)
	_, err := b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, "at a replica", err, locker.StoreUnavailable, true)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	promote(server)
	before, _ := server.Get(marker)
	_, err = b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, "without memory", err, locker.StoreWriteRefused, true)
	if after, _ := server.Get(marker); after != before {
		t.Errorf("the marker was %q and is %q", before, after)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	_, err = b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, "with memory", err, locker.StoreFailed, true)
	wantRecovering(t, "for one who agrees", open(t, server, Config{RestartGuard: time.Hour}))
}

func TestADoubtStandsUntilTheServerHasTakenNoteOfIt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.Start(t, "tcp", server.Addr())
	b := openGuarded(t, server, Config{Addrs: []Address{TCP(proxy.Addr())}, RestartGuard: time.Hour})
	mustAcquire(t, b, claimFor("held"))
	demote(server)
	_, err := b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, "at a replica", err, locker.StoreUnavailable, true)
	promote(server)

	var once sync.Once
	met, hold := make(chan struct{}), make(chan struct{})
	proxy.SetRule(func(c faultproxy.Command) (a faultproxy.Action) {
		if c.Name == "EVAL" && slices.Contains(c.Args, "greeting") {
			once.Do(func() { a.Hold = hold; close(met) })
		}
		return a
	})
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer close(hold)
	renewing.Go(func() { _ = renewOne(t.Context(), b, claimFor("held")) }) // over a connection of its own
	<-met
	wantRecovering(t, "while another connection is about to tell the server", b)
}

// Sentinels cut all connections to a server that they demote: only the greeting
// of the next one shows that it is no master.
func TestADemotionThatShowsInTheGreetingIsADoubt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	markOld(t, server, time.Hour)
	named := newFakeSentinel(t, server.Addr(), 1)
	b := open(t, nil, Config{Kind: Sentinel, MasterName: "m", StoreTimeout: time.Second, Addrs: []Address{TCP(named.addr)}, RestartGuard: time.Hour})
	mustAcquire(t, b, claimFor("held"))
	demote(server)
	server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	eventually(t, "the end has arrived", func() bool { return !hasQuietLink(b.servers.owner("").acquire) })
	_, err := b.Acquire(t.Context(), claimFor("free"))
	wantStoreError(t, "at a replica", err, locker.StoreUnavailable, true)
	promote(server)
	wantRecovering(t, "once it is a master again", b)
}

// A server that was left for another and never restarted still has its marker.
func TestAServerThatIsComeBackToAfterAnotherIsInDoubt(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, *redistest.Server) (b *Backend, lead func(*redistest.Server)){
		"behind an address": func(t *testing.T, first *redistest.Server) (*Backend, func(*redistest.Server)) {
			service := faultproxy.Start(t, "tcp", first.Addr())
			b := open(t, first, Config{Addrs: []Address{TCP(service.Addr())}, RestartGuard: time.Hour})
			return b, func(next *redistest.Server) {
				service.Lead(next.Addr())
				service.Cut()
				eventually(t, "the end has arrived", func() bool { return !hasQuietLink(only(b).acquire) })
			}
		},
		"behind Sentinels": func(t *testing.T, first *redistest.Server) (*Backend, func(*redistest.Server)) {
			named, epoch := newFakeSentinel(t, first.Addr(), 1), 1
			b := open(t, nil, Config{Kind: Sentinel, MasterName: "m", StoreTimeout: time.Second, Addrs: []Address{TCP(named.addr)}, RestartGuard: time.Hour})
			return b, func(next *redistest.Server) {
				epoch++
				named.set(next.Addr(), epoch, false)
				b.servers.(*sentinels).lookNow()
				eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := redistest.Start(t), redistest.Start(t)
			markOld(t, first, time.Hour)
			markOld(t, second, time.Hour)
			b, lead := open(t, first)
			mustAcquire(t, b, claimFor("on the first"))
			lead(second)
			mustAcquire(t, b, claimFor("on the second")) // which others have used before us
			lead(first)
			wantRecovering(t, "back on the first", b)
			before, _ := first.Get(marker)
			if err := b.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after, _ := first.Get(marker); after != before {
				t.Errorf("the marker was %q and is %q: its time has begun anew", before, after)
			}
			lead(second)
			wantRecovering(t, "back on the second", b)
		})
	}
}
