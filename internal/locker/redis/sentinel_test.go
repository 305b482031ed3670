package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// openSentinel returns a backend that finds its servers by Sentinels.
func openSentinel(t testing.TB, s *redistest.Sentinel, config Config) *Backend {
	t.Helper()
	config.Kind, config.MasterName = Sentinel, s.Name
	if config.Addrs == nil {
		config.Addrs = tcpAll(s.Addrs())
	}
	return open(t, nil, config)
}

func tcpAll(addrs []string) []Address {
	var all []Address
	for _, addr := range addrs {
		all = append(all, TCP(addr))
	}
	return all
}

// masterIs tells whether a backend takes the server for the master.
func masterIs(b *Backend, server *redistest.Server) bool {
	n := b.servers.owner("")
	return n != nil && n.address == TCP(server.Addr())
}

func TestSentinelsLeadToTheMasterAndToItsSuccessors(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{Config: redistest.Config{Password: password}, SentinelPassword: "of-sentinels"}.StartSentinel(t)
	b := openSentinel(t, s, Config{Password: value(password), SentinelPassword: value("of-sentinels")})
	cycle(t, b)
	w := newWaiter(b, "p")
	w.listen(t)
	c := claimFor("held")
	first := mustAcquire(t, b, c)
	old := s.Master()
	old.AwaitReplicated(2)

	next := s.Failover()
	eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
	if old.Role() != "master" {
		t.Log("the old master is none any more: nothing is shown of what it could grant")
	}
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew: %v", err)
	}
	later := claimFor("later")
	if second := mustAcquire(t, b, later); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	if _, ok := next.Get(b.keys.lock("later")); !ok {
		t.Error("the new master has not granted the lock")
	}
	if _, ok := old.Get(b.keys.lock("later")); ok && old.Role() == "master" {
		t.Error("the old master has granted the lock")
	}
	w.await(t, locker.HintListening)
	next.Do("PUBLISH", b.keys.channel(w.name), "wk")
	w.await(t, locker.HintWake)
	cycle(t, b)
}

func TestADeadMasterIsUnavailableUntilTheSentinelsHaveAnother(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{}.StartSentinel(t)
	b := openSentinel(t, s, Config{StoreTimeout: 300 * time.Millisecond})
	for _, kill := range []bool{true, false} { // or freeze
		c := claimFor("held")
		eventually(t, "a grant", func() bool { _, err := b.Acquire(t.Context(), c); return err == nil })
		old := s.Master()
		old.AwaitReplicated(len(s.Servers) - 1)
		s.SetDownAfter(500 * time.Millisecond)
		if kill {
			old.Kill()
		} else {
			old.Stop()
		}
		var since time.Time
		var next *redistest.Server
		for attempt := 0; ; attempt++ {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			began := time.Now()
			err := b.Renew(ctx, []locker.Renewal{renewalOf(c)})[0].Err
			cancel()
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("an answer took %v", took)
			}
			if next == nil {
				if next = s.Master(); next != nil {
					since = time.Now()
				}
			}
			if err == nil {
				break
			}
			var failure *locker.StoreError
			if !errors.As(err, &failure) {
				t.Fatalf("renew: %v", err)
			}
			if next != nil && time.Since(since) > 30*time.Second {
				t.Fatalf("the new master is not used: %v", err)
			}
		}
		next = s.AwaitMaster(old)
		if !masterIs(b, next) {
			t.Error("it was renewed elsewhere")
		}
		s.SetDownAfter(time.Minute)
		if kill {
			old.Restart() // as a master, if it were asked; its place is taken
		} else {
			old.Cont()
		}
		unhurried, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := b.Acquire(unhurried, claimFor(locker.Key(fmt.Sprint("after", kill)))); err != nil {
			t.Fatalf("acquire: %v", err)
		}
		if _, ok := old.Get(b.keys.lock(locker.Key(fmt.Sprint("after", kill)))); ok && old.Role() == "master" {
			t.Error("the old master was asked")
		}
		s.AwaitReplicas(next, len(s.Servers)-1)
		unhurried, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := releaseOne(unhurried, b, c); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

// fakeSentinel is a Sentinel that says what it is told to.
type fakeSentinel struct {
	addr string

	mu     sync.Mutex
	silent bool
	host   string
	epoch  int
	asked  atomic.Int64
}

func (f *fakeSentinel) set(host string, epoch int, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.host, f.epoch, f.silent = host, epoch, silent
}

func newFakeSentinel(t *testing.T, host string, epoch int) *fakeSentinel {
	f := &fakeSentinel{host: host, epoch: epoch}
	f.addr = oddServer(t, func(args []string) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.silent {
			return ""
		}
		switch strings.ToLower(args[0]) {
		case "ping":
			return "+PONG\r\n"
		case "subscribe":
			return "*3\r\n" + bulk("subscribe") + bulk(args[1]) + ":1\r\n"
		}
		host, port, _ := strings.Cut(f.host, ":")
		if strings.ToLower(args[1]) == "master" {
			return array("name", args[2], "ip", host, "port", port, "config-epoch", fmt.Sprint(f.epoch), "quorum", "2")
		}
		f.asked.Add(1)
		return array(host, port)
	})
	return f
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func TestTheSentinelOfTheLatestEpochIsBelieved(t *testing.T) {
	t.Parallel()
	past, present, replica := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	demote(replica)
	stale, current, wrong := newFakeSentinel(t, past.Addr(), 3), newFakeSentinel(t, present.Addr(), 4), newFakeSentinel(t, replica.Addr(), 5)
	b := open(t, nil, Config{
		Kind: Sentinel, MasterName: "m", StoreTimeout: time.Second,
		Addrs: []Address{TCP(stale.addr), TCP(wrong.addr), TCP(current.addr)},
	})
	mustAcquire(t, b, claimFor("a"))
	if !masterIs(b, present) {
		t.Fatal("the master is not the one of the latest epoch that says that it is one")
	}
	// The one that knows is cut off: the one that does not is not believed.
	current.set(present.Addr(), 4, true)
	asked := stale.asked.Load()
	b.servers.(*sentinels).lookNow()
	eventually(t, "the Sentinels are asked", func() bool { return stale.asked.Load() > asked })
	mustAcquire(t, b, claimFor("b"))
	if !masterIs(b, present) {
		t.Fatal("it went back to the master of the past")
	}
	// Unless the master is gone, and there is nothing better.
	present.Kill()
	eventually(t, "the other is asked", func() bool {
		_, err := b.Acquire(t.Context(), claimFor("c"))
		return err == nil
	})
	if !masterIs(b, past) {
		t.Error("it is neither of them")
	}
}

func TestAddressesOfAnotherKindAreTold(t *testing.T) {
	t.Parallel()
	lone, trio := redistest.Start(t), redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	cluster := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	for name, tt := range map[string]struct {
		config Config
		found  string
	}{
		"a Sentinel for a server":          {Config{Addrs: tcpAll(trio.Addrs()[:1])}, noServer},
		"a node of a cluster for a server": {Config{Addrs: tcpAll(cluster.Addrs()[:1])}, aClusterNode},
		"a server for a Sentinel":          {Config{Kind: Sentinel, MasterName: "m", Addrs: []Address{TCP(lone.Addr())}}, noSentinel},
	} {
		tt.config.StoreTimeout = time.Second
		b := open(t, nil, tt.config)
		err := b.Ping(t.Context())
		wantStoreError(t, name, err, locker.StoreUnavailable, true)
		var wrong *WrongKindError
		if !errors.As(err, &wrong) || wrong.Found != tt.found {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := open(t, nil, Config{Kind: Sentinel, MasterName: "another", Addrs: tcpAll(trio.Addrs()), StoreTimeout: time.Second})
	if err := b.Ping(t.Context()); !contains(err, "knows no master named another") {
		t.Errorf("another name: %v", err)
	}
}

func TestRefusedCredentialsAreToldApart(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{Config: redistest.Config{Password: password}, SentinelPassword: "of-sentinels", Replicas: 1}.StartSentinel(t)
	for name, config := range map[string]Config{
		"to the Sentinels":  {Password: value(password), SentinelPassword: value("wrong")},
		"none to Sentinels": {Password: value(password)},
		"to the master":     {Password: value("wrong"), SentinelPassword: value("of-sentinels")},
	} {
		config.StoreTimeout = time.Second
		b := openSentinel(t, s, config)
		wantStoreError(t, name, b.Ping(t.Context()), locker.StoreAuthFailed, true)
	}
}

func TestSentinelsAndTheirMasterAreReachedByTLSAlone(t *testing.T) {
	t.Parallel()
	ca := redistest.NewCA(t)
	s := redistest.SentinelConfig{Config: redistest.Config{TLS: true, CA: ca}, Replicas: 1}.StartSentinel(t)
	b := openSentinel(t, s, Config{TLS: trusting(ca)})
	cycle(t, b)
	b = openSentinel(t, s, Config{TLS: trusting(redistest.NewCA(t)), StoreTimeout: time.Second})
	wantStoreError(t, "another authority", b.Ping(t.Context()), locker.StoreUnavailable, true)
}
