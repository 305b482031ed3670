package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func openCluster(t testing.TB, c *redistest.Cluster, config Config) *Backend {
	t.Helper()
	config.Kind = Cluster
	if config.Addrs == nil {
		config.Addrs = tcpAll(c.Addrs()[:2])
	}
	return open(t, nil, config)
}

func TestTheBackendConformsOnACluster(t *testing.T) {
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	permit(t, c.Nodes, "cluster")
	defer wantNothingDenied(t, c.Nodes)
	conform(t, func(t *testing.T, config Config) *Backend { return openCluster(t, c, config) },
		func(name string) *redistest.Server { return c.Nodes[slotOf(name)/(slotCount/3+1)] }, c.Nodes...)
}

// keysOf returns keys whose slots the server has, n of them.
func keysOf(t testing.TB, b *Backend, server *redistest.Server, n int) []locker.Key {
	t.Helper()
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var keys []locker.Key
	for i := 0; len(keys) < n; i++ {
		key := locker.Key(fmt.Sprint("k", i))
		if b.servers.owner(b.keys.lock(key)).address == TCP(server.Addr()) {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestALocksNamesShareASlotAndTheServersAgree(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	for _, prefix := range []string{"", "lock:", "a/b "} {
		l := layout{prefix}
		for _, key := range []locker.Key{"k", "a/b", "orders", "ключ/1", "#", "a#b", "123456789"} {
			slot := c.Slot(l.lock(key))
			for _, name := range append(l.companions(key), l.lock(key)) {
				if got, theirs := slotOf(name), c.Slot(name); got != slot || theirs != slot {
					t.Errorf("%q is in slot %d for us and %d for them, want %d", name, got, theirs, slot)
				}
			}
		}
	}
	for _, name := range []string{"{}", "{}a", "a{b", "a}b", "{a}{b}", "a{}{b}", "{{a}}", ""} {
		if got, want := slotOf(name), c.Slot(name); got != want {
			t.Errorf("%q is in slot %d for us and %d for them", name, got, want)
		}
	}
}

func TestBatchesAreDividedAmongTheServers(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	b := openCluster(t, c, Config{})
	var claims []locker.Claim
	for i := range 300 {
		claims = append(claims, claimFor(locker.Key(fmt.Sprint("k", i))))
		mustAcquire(t, b, claims[i])
	}
	renewals := make([]locker.Renewal, len(claims))
	surrenders := make([]locker.Surrender, len(claims))
	for i, c := range claims {
		renewals[i], surrenders[i] = renewalOf(c), surrenderOf(c)
	}
	for i, v := range b.Renew(t.Context(), renewals) {
		if v.Err != nil || v.UnixMicro == 0 {
			t.Fatalf("renewal %d: %+v", i, v)
		}
	}
	for _, server := range c.Nodes {
		if n := len(server.Keys("lock:k*")); n < 50 {
			t.Errorf("%s has %d of the locks", server.Addr(), n)
		}
	}
	for i, v := range b.Release(t.Context(), surrenders) {
		if v.Err != nil {
			t.Fatalf("release %d: %v", i, v.Err)
		}
	}
	for _, server := range c.Nodes {
		if keys := server.Keys("lock:k*"); len(keys) != 0 {
			t.Errorf("%d locks are left", len(keys))
		}
	}
}

func TestAServerThatIsFrozenHoldsUpOnlyItsOwnLocks(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	const timeout = time.Second
	b, patient := openCluster(t, c, Config{StoreTimeout: timeout}), openCluster(t, c, Config{})
	frozen := c.Nodes[1]
	dead, alive := keysOf(t, patient, frozen, 20), slices.Concat(keysOf(t, patient, c.Nodes[0], 20), keysOf(t, patient, c.Nodes[2], 20))
	eventually(t, "the cluster is known", func() bool { return b.Ping(t.Context()) == nil })
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims := make(map[locker.Key]locker.Claim)
	for _, key := range append(dead, alive...) {
		claims[key] = claimFor(key)
		mustAcquire(t, patient, claims[key])
	}
	frozen.Stop()
	defer frozen.Cont()
	for range 3 {
		// Each in a call of its own, and mixed with one that gets no answer.
		var asking sync.WaitGroup
		for _, key := range alive {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := renewOne(ctx, b, claims[key]); err != nil {
					t.Errorf("renew on a server that works: %v", err)
				}
			})
		}
		asking.Wait()
		var mixed []locker.Renewal
		for i := range alive {
			mixed = append(mixed, renewalOf(claims[alive[i]]), renewalOf(claims[dead[i%len(dead)]]))
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		since := time.Now()
		for i, v := range b.Renew(ctx, mixed) {
			var failure *locker.StoreError
			if i%2 == 0 && v.Err != nil || i%2 == 1 && !errors.As(v.Err, &failure) {
				t.Errorf("renewal %d: %v", i, v.Err)
			}
		}
		cancel()
		if took := time.Since(since); took > timeout+5*time.Second {
			t.Errorf("the batch took %v", took)
		}
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestTheClusterIsFollowedThroughFailovers(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{}.StartCluster(t)
	b := openCluster(t, c, Config{})
	cycle(t, b)
	held := claimFor(testKey)
	first := mustAcquire(t, b, held)
	name := b.keys.lock(testKey)
	w := newWaiter(b, "p")
	w.listen(t)

	// By request, with both up: nobody notices.
	next := c.Failover(name)
	if err := renewOne(t.Context(), b, held); err != nil {
		t.Errorf("renew: %v", err)
	}
	eventually(t, "wake-ups of the new master are heard", func() bool {
		return next.Do("PUBSUB", "NUMSUB", b.keys.channel(w.name)).([]any)[1] == int64(1)
	})
	c.AwaitOK()

	// By death.
	next.AwaitReplicated(1)
	c.SetNodeTimeout(1500 * time.Millisecond)
	next.Kill()
	wantRefusals := func(what string, err error) {
		t.Helper()
		var failure *locker.StoreError
		if err != nil && (!errors.As(err, &failure) || failure.Reason == locker.StoreFailed || failure.Reason == locker.StoreAuthFailed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	eventually(t, "its replica takes over", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := renewOne(ctx, b, held)
		wantRefusals("renew", err)
		return err == nil
	})
	c.SetNodeTimeout(time.Minute)
	if err := releaseOne(t.Context(), b, held); err != nil {
		t.Errorf("release: %v", err)
	}
	later := claimFor(testKey)
	if again := mustAcquire(t, b, later); again.Fence <= first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	if err := releaseOne(t.Context(), b, later); err != nil {
		t.Errorf("release: %v", err)
	}
	cycle(t, b)
}

func TestASlotThatIsMovedIsFollowed(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	b := openCluster(t, c, Config{})
	held, waited := claimFor(testKey), newWaiter(b, "p")
	mustAcquire(t, b, held)
	name := b.keys.lock(testKey)
	from := c.MasterOf(name)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%3]
	waited.listen(t)
	claim := waited.join(t, testKey)

	step := func(what string) {
		t.Helper()
		if err := renewOne(t.Context(), b, held); err != nil {
			t.Errorf("renew %s: %v", what, err)
		}
	}
	m := c.Begin(name, to)
	step("before anything has moved")
	if _, other := waited.ask(t, claim); other == nil {
		t.Error("the lock was granted twice")
	}
	m.Keys(name) // and not its companions
	step("when the lock has moved")
	m.Keys(b.keys.companions(testKey)...)
	step("when all have moved")
	m.End()
	step("in the end")
	if _, other := waited.ask(t, claim); other == nil || other.QueueLength != 1 {
		t.Errorf("in line after the move: %+v", other)
	}
	if err := releaseOne(t.Context(), b, held); err != nil {
		t.Errorf("release: %v", err)
	}
	waited.await(t, locker.HintWake)
	waited.get(t, claim)
	if left := from.Do("CLUSTER", "COUNTKEYSINSLOT", slotOf(name)); left != int64(0) {
		t.Errorf("%d names are left where they were", left)
	}
}

// A call for many locks whose slot is on its way is refused (TRYAGAIN) while some
// are here and some there.
func TestABatchWhoseSlotIsOnItsWayIsDivided(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	b := openCluster(t, c, Config{StoreTimeout: 5 * time.Second})
	slot := slotOf(b.keys.lock(testKey))
	var claims []locker.Claim
	for i := 0; len(claims) < 6; i++ {
		if key := locker.Key(fmt.Sprint("k", i)); slotOf(b.keys.lock(key)) == slot {
			claims = append(claims, claimFor(key))
			mustAcquire(t, b, claims[len(claims)-1])
		}
	}
	name := b.keys.lock(claims[0].Key)
	from := c.MasterOf(name)
	m := c.Begin(name, c.Nodes[(slices.Index(c.Nodes, from)+1)%3])
	for _, claim := range claims[:3] {
		m.Keys(append(b.keys.companions(claim.Key), b.keys.lock(claim.Key))...)
	}
	renewals := make([]locker.Renewal, len(claims))
	surrenders := make([]locker.Surrender, len(claims))
	for i, claim := range claims {
		renewals[i], surrenders[i] = renewalOf(claim), surrenderOf(claim)
	}
	for i, v := range b.Renew(t.Context(), renewals) {
		if v.Err != nil {
			t.Errorf("renewal %d: %v", i, v.Err)
		}
	}
	if stats, _ := from.Do("INFO", "errorstats").(string); !strings.Contains(stats, "errorstat_TRYAGAIN") {
		t.Error("the server has never said TRYAGAIN: this does not show what it is to")
	}
	for i, v := range b.Release(t.Context(), surrenders) {
		if v.Err != nil {
			t.Errorf("release %d: %v", i, v.Err)
		}
	}
	m.End()
	for _, node := range c.Nodes {
		if keys := node.Keys("lock:k*"); len(keys) != 0 {
			t.Errorf("%q are left", keys)
		}
	}
}

// A free lock may have companions that are still where they were.
func TestALockWhoseCompanionsAreOnTheirWayIsNotMadeAheadOfThem(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	b := openCluster(t, c, Config{StoreTimeout: 5 * time.Second})
	released := claimFor("released")
	first := mustAcquire(t, b, released)
	if err := releaseOne(t.Context(), b, released); err != nil {
		t.Fatal(err)
	}
	record := b.keys.record("released")
	from := c.MasterOf(record)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%3]
	m := c.Begin(record, to)

	var err error
	for unknown := true; unknown; { // as is an attempt whose answer comes after the deadline
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = b.Acquire(ctx, claimFor("released"))
		cancel()
		var failure *locker.StoreError
		unknown = errors.As(err, &failure) && failure.Reason == locker.StoreTimeout
	}
	wantStoreError(t, "acquire while its record is to come", err, locker.StoreUnavailable, true)
	if got := to.Keys("*"); len(got) != 0 {
		t.Errorf("%q were made ahead", got)
	}
	// Somebody asks while it moves.
	var asking sync.WaitGroup
	asking.Go(func() {
		if again := mustAcquire(t, b, claimFor("released")); again.Fence <= first.Fence {
			t.Errorf("fence %d after %d", again.Fence, first.Fence)
		}
	})
	m.Keys(record) // fails if it is there
	asking.Wait()
	m.End()
	if to.PTTL(b.keys.lock("released")) <= 0 {
		t.Error("the lock is not where it belongs")
	}
}

func TestGrantsGoOnWhileSlotsAreMoved(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	b := openCluster(t, c, Config{StoreTimeout: 5 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	var cycles, refused atomic.Int64
	var keys []locker.Key
	for i := range 4 {
		keys = append(keys, locker.Key(fmt.Sprint("moving", i)))
	}
	for _, key := range keys {
		var held atomic.Int32
		for range 2 {
			working.Go(func() {
				var last locker.Fence
				for ctx.Err() == nil {
					c := claimFor(key)
					grant, err := b.Acquire(t.Context(), c)
					var other *locker.HeldError
					if errors.As(err, &other) {
						continue
					}
					if err != nil {
						refused.Add(1)
						wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
						continue
					}
					if held.Add(1) != 1 {
						t.Errorf("%q is held twice", key)
					}
					if grant.Fence <= last {
						t.Errorf("fence %d after %d", grant.Fence, last)
					}
					last = grant.Fence
					if err := renewOne(t.Context(), b, c); err != nil {
						t.Errorf("renew: %v", err)
					}
					held.Add(-1)
					if err := releaseOne(t.Context(), b, c); err != nil {
						t.Errorf("release: %v", err)
					}
					cycles.Add(1)
				}
			})
		}
	}
	moves := 0
	for since := time.Now(); time.Since(since) < 3*time.Second; moves++ {
		name := b.keys.lock(keys[moves%len(keys)])
		from := c.MasterOf(name)
		c.Move(name, c.Nodes[(slices.Index(c.Nodes, from)+1+moves%2)%3])
	}
	stop()
	working.Wait()
	t.Logf("%d moves, %d cycles, %d refused", moves, cycles.Load(), refused.Load())
	if cycles.Load() == 0 {
		t.Error("nothing was granted")
	}
}

func TestALoneServerIsNoCluster(t *testing.T) {
	t.Parallel()
	lone, trio := redistest.Start(t), redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	for addr, found := range map[string]string{lone.Addr(): aLoneServer, trio.Addrs()[0]: noServer} {
		b := open(t, nil, Config{Kind: Cluster, Addrs: []Address{TCP(addr)}, StoreTimeout: time.Second})
		err := b.Ping(t.Context())
		wantStoreError(t, found, err, locker.StoreUnavailable, true)
		var wrong *WrongKindError
		if !errors.As(err, &wrong) || wrong.Found != found {
			t.Errorf("%s: %v", found, err)
		}
	}
}

func TestRedirections(t *testing.T) {
	t.Parallel()
	from := TCP("10.0.0.1:6379")
	for text, want := range map[string]struct {
		slot int
		to   string
	}{
		"MOVED 3999 127.0.0.1:6381":              {3999, "127.0.0.1:6381"},
		"ASK 0 redis-2.redis.svc:6379":           {0, "redis-2.redis.svc:6379"},
		"MOVED 16383 :7000":                      {16383, "10.0.0.1:7000"},
		"MOVED 5 ?:7000":                         {5, "10.0.0.1:7000"},
		"MOVED 5 fe80::1:7000":                   {5, "[fe80::1]:7000"},
		"MOVED 16384 a:1":                        {-1, ""},
		"MOVED -1 a:1":                           {-1, ""},
		"MOVED x a:1":                            {-1, ""},
		"MOVED 1 a:0":                            {-1, ""},
		"MOVED 1 a:65536":                        {-1, ""},
		"MOVED 1 a":                              {-1, ""},
		"MOVED 1":                                {-1, ""},
		"TRYAGAIN Multiple keys request …":       {-1, ""},
		"":                                       {-1, ""},
		"MOVED 1 a:1 " + strings.Repeat("b", 99): {-1, ""},
	} {
		slot, to, ok := readRedirection(text, from)
		if ok != (want.slot >= 0) || ok && (slot != want.slot || to != TCP(want.to)) {
			t.Errorf("%q: slot %d at %s, %v", text, slot, to, ok)
		}
	}
}

func TestATableThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	from := TCP("10.0.0.1:6379")
	node := func(host any, port any) any { return []any{host, port, "id", []any{}} }
	good := []any{int64(0), int64(16383), node(nil, int64(7))}
	if ranges, ok := readTable([]any{good}, from); !ok || len(ranges) != 1 || ranges[0].at != TCP("10.0.0.1:7") {
		t.Errorf("%+v, %v", ranges, ok)
	}
	for _, bad := range []any{
		nil, "x", []any{"x"}, []any{[]any{}}, []any{[]any{int64(0), int64(1)}},
		[]any{[]any{int64(0), int64(16384), node("a", int64(1))}}, []any{[]any{int64(-1), int64(1), node("a", int64(1))}},
		[]any{[]any{int64(2), int64(1), node("a", int64(1))}}, []any{[]any{int64(0), int64(1), node("a", int64(0))}},
		[]any{[]any{int64(0), int64(1), node("a", "1")}}, []any{[]any{int64(0), int64(1), []any{"a"}}}, []any{good, nil},
	} {
		if ranges, ok := readTable(bad, from); ok {
			t.Errorf("%v is read as %+v", bad, ranges)
		}
	}
}

func TestASlotThatNobodyHasHoldsUpOnlyItsOwnLocks(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1, Config: redistest.Config{Directives: []string{"cluster-require-full-coverage no"}}}.StartCluster(t)
	b := openCluster(t, c, Config{})
	keys := slices.Concat(keysOf(t, b, c.Nodes[0], 1), keysOf(t, b, c.Nodes[1], 1), keysOf(t, b, c.Nodes[2], 1))
	claims := make([]locker.Claim, len(keys))
	renewals := make([]locker.Renewal, len(keys))
	surrenders := make([]locker.Surrender, len(keys))
	for i, key := range keys {
		claims[i] = claimFor(key)
		mustAcquire(t, b, claims[i])
		renewals[i], surrenders[i] = renewalOf(claims[i]), surrenderOf(claims[i])
	}
	name := b.keys.lock(keys[0])
	for _, node := range c.Nodes {
		node.Do("CLUSTER", "DELSLOTS", slotOf(name))
	}
	eventually(t, "it is known that nobody has the slot", func() bool {
		poke(b.servers.(*cluster).doubt)
		return b.servers.owner(name) == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i, v := range b.Renew(ctx, renewals) {
		if i == 0 {
			wantStoreError(t, "renew in the slot", v.Err, locker.StoreUnavailable, true)
		} else if v.Err != nil {
			t.Errorf("renew elsewhere: %v", v.Err)
		}
	}
	// It is sent as soon as somebody has the slot.
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var releasing sync.WaitGroup
	var verdicts []locker.Verdict
	releasing.Go(func() { verdicts = b.Release(ctx, surrenders) })
	eventually(t, "the others are released", func() bool {
		_, second := c.Nodes[1].Get(b.keys.lock(keys[1]))
		_, third := c.Nodes[2].Get(b.keys.lock(keys[2]))
		return !second && !third
	})
	for i, node := range c.Nodes {
		if i == 0 {
			node.Do("CLUSTER", "ADDSLOTS", slotOf(name))
		} else {
			node.Do("CLUSTER", "SETSLOT", slotOf(name), "NODE", c.Nodes[0].Do("CLUSTER", "MYID"))
		}
	}
	eventually(t, "it is known that somebody has the slot", func() bool {
		poke(b.servers.(*cluster).doubt)
		return b.servers.owner(name) != nil
	})
	releasing.Wait()
	for i, v := range verdicts {
		if v.Err != nil {
			t.Errorf("release %d: %v", i, v.Err)
		}
	}
}

// While a slot is on its way to a server that has none yet, that is in use.
func TestAServerThatIsAskedKeepsItsConnections(t *testing.T) {
	t.Parallel()
	c := newCluster(&nodes{config: Config{StoreTimeout: time.Second, Now: locker.BootTime, Log: slog.New(slog.DiscardHandler)}, lacks: new(lacks)})
	defer c.close()
	c.cancel()
	c.running.Wait() // who gives servers up by itself
	asked, left := c.at(TCP("127.0.0.1:1")), c.at(TCP("127.0.0.1:2"))
	for n := range c.unused {
		c.unused[n] = time.Now().Add(-time.Minute)
	}
	c.at(asked.address)
	c.retire()
	if c.at(asked.address) != asked {
		t.Error("the server that calls are sent to was given up")
	}
	if c.at(left.address) == left {
		t.Error("the server that is of no use was not given up")
	}
}
