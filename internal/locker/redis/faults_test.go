package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestOutOfMemoryRefusesGrantsAndNeitherRenewalsNorReleases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	plain, held := claimFor(testKey), claimFor("with-min-hold")
	mustAcquire(t, b, plain)
	mustAcquire(t, b, held)
	server.Do("CONFIG", "SET", "maxmemory", "1")

	_, err := b.Acquire(t.Context(), claimFor("another"))
	wantStoreError(t, "acquire", err, locker.StoreWriteRefused, true)
	if _, ok := server.Get(b.keys.lock("another")); ok {
		t.Error("the refused lock was written")
	}
	wantStoreError(t, "annotate", b.Annotate(t.Context(), plain.Key, plain.Token, "note"), locker.StoreWriteRefused, true)
	if err := renewOne(t.Context(), b, plain); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := releaseOne(t.Context(), b, plain); err != nil {
		t.Errorf("release: %v", err)
	}
	s := surrenderOf(held)
	s.Keep = 20 * time.Second
	if v := b.Release(t.Context(), []locker.Surrender{s})[0]; v.Err != nil {
		t.Errorf("release with a minimum hold: %v", v.Err)
	}
	if left := server.PTTL(b.keys.lock(held.Key)); left <= 0 || left > s.Keep {
		t.Errorf("the key stays taken for %v, want %v", left, s.Keep)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	mustAcquire(t, b, claimFor("another"))
}

func TestAServerThatCannotPersistRefusesAllForCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	if err := os.Mkdir(filepath.Join(server.Dir(), "dump.rdb"), 0o700); err != nil { // no snapshot can go there
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "save", "3600 1")
	server.Do("BGSAVE")
	eventually(t, "the snapshot fails", func() bool {
		return infoFields(server.Do("INFO", "persistence"))["rdb_last_bgsave_status"] == "err"
	})
	_, err := b.Acquire(t.Context(), claimFor("another"))
	wantStoreError(t, "acquire", err, locker.StoreWriteRefused, true)
	wantStoreError(t, "renew", renewOne(t.Context(), b, c), locker.StoreWriteRefused, true)
	wantStoreError(t, "release", releaseOne(t.Context(), b, c), locker.StoreWriteRefused, true)
	if _, ok := server.Get(lockName); !ok {
		t.Error("the lock is not there any more")
	}
}

// The limit on the size of files does what a full disk would: writing fails, and
// Redis goes on.
func TestAServerWhoseAppendOnlyFileCannotGrowRefusesAllForCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Config{
		Directives: []string{"appendonly yes"},
		Wrap:       []string{"sh", "-c", `trap "" XFSZ; ulimit -f 256; exec "$0" "$@"`},
	}.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	eventually(t, "the file is full", func() bool {
		_, err := server.Try("SET", "filler", strings.Repeat("x", 100_000))
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
	})
	_, err := b.Acquire(t.Context(), claimFor("another"))
	wantStoreError(t, "acquire", err, locker.StoreWriteRefused, true)
	wantStoreError(t, "renew", renewOne(t.Context(), b, c), locker.StoreWriteRefused, true)
	wantStoreError(t, "release", releaseOne(t.Context(), b, c), locker.StoreWriteRefused, true)
	server.Do("CONFIG", "SET", "appendonly", "no")
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew once there is no file: %v", err)
	}
	mustAcquire(t, b, claimFor("another"))
}

func TestTooFewReplicasRefuseWritesForCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	_, err := b.Acquire(t.Context(), claimFor("another"))
	wantStoreError(t, "acquire", err, locker.StoreWriteRefused, true)
	wantStoreError(t, "renew", renewOne(t.Context(), b, c), locker.StoreWriteRefused, true)
	server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	mustAcquire(t, b, claimFor("another"))
}

func TestALoadingServerIsUnavailableForCertainUntilItHasLoaded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "key-load-delay 20000", "loading-process-events-interval-bytes 1024", "rdbcompression no")
	b := open(t, server, Config{})
	for i := range 50 {
		server.Do("SET", "filler:"+strconv.Itoa(i), strings.Repeat("x", 1024))
	}
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("SAVE")
	server.RestartLoading()
	met := false
	eventually(t, "the server has loaded", func() bool {
		err := renewOne(t.Context(), b, c)
		if err != nil {
			wantStoreError(t, "renew", err, locker.StoreUnavailable, true)
			met = met || contains(err, "LOADING")
		}
		return err == nil
	})
	if !met {
		t.Error("the server was never met while it was loading")
	}
}

func TestABusyServerRefusesForCertainAndIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "lua-time-limit 20")
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	busy := server.Dial()
	ended := make(chan error, 1)
	go func() {
		_, err := busy.Do("EVAL", `redis.call('SET', 'written', '1')
			local start = redis.call('TIME')
			repeat local now = redis.call('TIME')
			until (now[1] - start[1]) * 1000000 + now[2] - start[2] > 2000000`, 0)
		ended <- err
	}()
	eventually(t, "the server is busy", func() bool {
		err := renewOne(t.Context(), b, c)
		if err != nil {
			wantStoreError(t, "renew", err, locker.StoreBusy, true)
		}
		return err != nil
	})
	_, err := b.Acquire(t.Context(), claimFor("another"))
	wantStoreError(t, "acquire", err, locker.StoreBusy, true)
	if err := <-ended; err != nil {
		t.Errorf("the script of somebody else: %v", err)
	}
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew afterwards: %v", err)
	}
}

func TestADemotedServerIsLeftAndAskedAgainOverANewConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for range 3 {
		before := only(b).acquire.poolStats().Connects
		_, err := b.Acquire(t.Context(), claimFor("another"))
		wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
		_, err = b.Acquire(t.Context(), claimFor("another"))
		wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
		if connects := only(b).acquire.poolStats().Connects - before; connects == 0 {
			t.Error("the connection to the demoted server was used again")
		}
	}
	wantStoreError(t, "renew", renewOne(t.Context(), b, c), locker.StoreUnavailable, true)
	wantStoreError(t, "release", releaseOne(t.Context(), b, c), locker.StoreUnavailable, true)
	server.Do("REPLICAOF", "NO", "ONE")
	mustAcquire(t, b, claimFor("another"))
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew: %v", err)
	}
}

func TestAServerThatIsDownIsUnavailableAtOnceAndForCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{Addrs: []Address{TCP(server.Addr())}})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Kill()
	eventually(t, "the end has arrived", func() bool { return !hasQuietLink(only(b).acquire) && !hasQuietLink(only(b).renew) })
	for range 3 { // the first meets the old connection, which is known to be dead
		since := time.Now()
		_, err := b.Acquire(t.Context(), claimFor("another"))
		wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
		wantStoreError(t, "renew", renewOne(t.Context(), b, c), locker.StoreUnavailable, true)
		if took := time.Since(since); took > 2*time.Second {
			t.Errorf("the answer took %v", took)
		}
	}
	server.Restart()
	mustAcquire(t, b, claimFor("another")) // and at once
	if err := renewOne(t.Context(), b, c); !errors.Is(err, locker.ErrGone) {
		t.Errorf("renew on the empty server: %v, want gone", err)
	}
}

func TestAServerMayBeDownWhenTheBackendIsMade(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	b := open(t, server, Config{})
	if err := b.Warm(t.Context()); err == nil {
		t.Error("warm: no error")
	}
	wantStoreError(t, "ping", b.Ping(t.Context()), locker.StoreUnavailable, true)
	server.Restart()
	if err := b.Warm(t.Context()); err != nil {
		t.Errorf("warm: %v", err)
	}
	for _, s := range b.Stats() {
		if s.Connections != 2 || s.Failures == 0 {
			t.Errorf("%s has %d connections after %d failures, want 2 after some", s.Name, s.Connections, s.Failures)
		}
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestAFrozenServerHoldsNobodyLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	// The slack is for a machine that is busy with something else; who waited for
	// the server would wait for as long as it is frozen.
	const timeout, slack = 300 * time.Millisecond, 10 * time.Second
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: timeout})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	var (
		wg             sync.WaitGroup
		mu             sync.Mutex
		certain, other int
	)
	for range 2 { // with the old connections, then without any
		for i := range 20 {
			wg.Go(func() {
				since := time.Now()
				_, err := b.Acquire(t.Context(), claimFor(locker.Key("k"+strconv.Itoa(i))))
				if took := time.Since(since); took > timeout+slack {
					t.Errorf("acquire took %v", took)
				}
				mu.Lock()
				defer mu.Unlock()
				var failure *locker.StoreError
				switch {
				case !errors.As(err, &failure):
					t.Errorf("acquire: %v, want a store error", err)
				case failure.Certain:
					certain++
				default:
					other++
				}
			})
		}
		wg.Wait()
	}
	if certain == 0 || other == 0 {
		t.Errorf("%d outcomes are certain and %d unknown, want both", certain, other)
	}
	server.Cont()
	eventually(t, "the server answers again", func() bool { return b.Ping(t.Context()) == nil })
}

func TestARequestHeldUpByAFrozenServerIsNotExecutedAfterItsTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor("other"))
	server.Stop()
	c := claimFor(testKey)
	c.NotAfter = locker.BootTime().Add(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, c)
	wantStoreError(t, "acquire", err, locker.StoreTimeout, false)
	eventually(t, "the claim's time is over", func() bool { return locker.BootTime() > c.NotAfter })
	server.Cont()
	// The commands of one socket are executed before those that come later.
	eventually(t, "the server answers again", func() bool { return b.Ping(t.Context()) == nil })
	server.Do("PING")
	if _, ok := server.Get(lockName); ok {
		t.Error("the claim was granted after its time")
	}
}

func TestACallerWhoLeavesIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: 30 * time.Second})
	mustAcquire(t, b, claimFor("other"))
	server.Stop()
	for range 5 { // sending, queued, connecting
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, claimFor(testKey))
			answered <- err
		}()
		select {
		case err := <-answered:
			t.Fatalf("a frozen server answered: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		cancel()
		select {
		case err := <-answered:
			var failure *locker.StoreError
			if !errors.As(err, &failure) {
				t.Errorf("acquire: %v, want a store error", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the caller has left and is not answered")
		}
	}
}

func TestCloseAnswersEverybodyAndRefusesLaterCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: 30 * time.Second})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			var failure *locker.StoreError
			if _, err := b.Acquire(t.Context(), claimFor(testKey)); !errors.As(err, &failure) {
				t.Errorf("acquire: %v, want a store error", err)
			}
		})
	}
	eventually(t, "calls are queued", func() bool { return only(b).acquire.poolStats().Queued > 10 })
	b.Close()
	wg.Wait()
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire after close", err, locker.StoreUnavailable, true)
	if err := b.Warm(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("warm after close: %v", err)
	}
}

func TestAServerThatAcceptsAndSaysNothingIsUnavailableForCertain(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	b, err := New(Config{Addrs: []Address{TCP(mute.Addr().String())}, StoreTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	since := time.Now()
	_, err = b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
	if took := time.Since(since); took > 2*time.Second {
		t.Errorf("the answer took %v", took)
	}
}
