package redis

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// openNamed returns a backend that finds its server by Sentinels which say what
// they are told to.
func openNamed(t *testing.T, config Config, named ...*fakeSentinel) *Backend {
	t.Helper()
	config.Kind, config.MasterName, config.StoreTimeout = Sentinel, "m", time.Second
	for _, f := range named {
		config.Addrs = append(config.Addrs, TCP(f.addr))
	}
	return open(t, nil, config)
}

// awaitLook returns once what the Sentinel says now has been acted upon.
func awaitLook(t *testing.T, b *Backend, f *fakeSentinel) {
	t.Helper()
	for range 3 { // each look begins when the one before is over; the first may have begun before the call
		asked := f.asked.Load()
		b.servers.(*sentinels).lookNow()
		eventually(t, "the Sentinels are asked", func() bool { return f.asked.Load() > asked })
	}
}

func TestALaterMasterThatIsOfNoUseYetIsLookedForUntilItIs(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]bool{"one Sentinel names it": false, "most name it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, next := redistest.Start(t), redistest.Start(t)
			demote(next) // it has not heard of it yet
			first, second, third := newFakeSentinel(t, old.Addr(), 1), newFakeSentinel(t, old.Addr(), 1), newFakeSentinel(t, old.Addr(), 1)
			b := openNamed(t, Config{}, first, second, third)
			mustAcquire(t, b, claimFor("a"))
			first.set(next.Addr(), 2, false)
			if most {
				second.set(next.Addr(), 2, false)
			}
			awaitLook(t, b, first)
			_, err := b.Acquire(t.Context(), claimFor("b"))
			if most {
				wantStoreError(t, "while others may use the later one", err, locker.StoreUnavailable, true)
				if _, err := b.Report(t.Context()); err == nil {
					t.Error("nobody is asked, and there is a report")
				}
			} else if err != nil {
				t.Errorf("one Sentinel alone stops all: %v", err)
			}
			since := time.Now()
			promote(next)
			eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
			if took := time.Since(since); took > lookEvery/2 {
				t.Errorf("it was looked for %v later", took)
			}
			mustAcquire(t, b, claimFor("c"))
		})
	}
}

func TestOneFailedCallLeadsToNoMasterOfThePast(t *testing.T) {
	t.Parallel()
	past, present := redistest.Start(t), redistest.Start(t)
	proxy := faultproxy.Start(t, "tcp", present.Addr())
	stale, current := newFakeSentinel(t, past.Addr(), 3), newFakeSentinel(t, proxy.Addr(), 4)
	b := openNamed(t, Config{}, stale, current)
	eventually(t, "the master is found", func() bool {
		n := b.servers.owner("")
		return n != nil && n.address == TCP(proxy.Addr())
	})
	mustAcquire(t, b, claimFor("a"))
	current.set(proxy.Addr(), 4, true)
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		return faultproxy.Action{Reset: c.Mentions("{b}") || c.Mentions("lock:b")}
	})
	if _, err := b.Acquire(t.Context(), claimFor("b")); err == nil {
		t.Fatal("the call did not fail")
	}
	awaitLook(t, b, stale)
	mustAcquire(t, b, claimFor("c"))
	if _, ok := past.Get(b.keys.lock("c")); ok {
		t.Error("the master of the past was asked")
	}
	proxy.Close()
	present.Kill()
	eventually(t, "there is nothing better", func() bool {
		_, err := b.Acquire(t.Context(), claimFor("d"))
		return err == nil
	})
	if _, ok := past.Get(b.keys.lock("d")); !ok {
		t.Error("it is not on the only master there is")
	}
}

func TestAMasterThatRefusesUsIsNotTriedAtEachLook(t *testing.T) {
	t.Parallel()
	server := redistest.Config{Password: password}.Start(t)
	named := newFakeSentinel(t, server.Addr(), 1)
	log := &lines{}
	openNamed(t, Config{Password: value("wrong"), Log: slog.New(slog.NewTextHandler(log, nil))}, named)
	eventually(t, "it is looked for several times", func() bool { return named.asked.Load() > 6 })
	if n := strings.Count(log.all(), "no connection to the store"); n != 1 {
		t.Errorf("%d lines of log, want 1", n)
	}
	if refused := deniedLogins(t, server); refused == 0 || refused > 8 {
		t.Errorf("the server has refused %d logins, want a few", refused)
	}
}
