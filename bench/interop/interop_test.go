package interop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	lockredis "github.com/locksidecar/locksidecar/internal/locker/redis"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const (
	key  = locker.Key("nightly/report")
	name = "lock:nightly/report" // what the peers have to call it
	pod  = "test/pod-0"

	long  = time.Minute
	short = time.Second // a TTL that a test waits for, and a few calls fit into

	patience = 10 * time.Second
)

// world is one server with locksidecar's backend and one peer on it.
type world struct {
	*redistest.Server
	backend *lockredis.Backend
	peer    peer
}

// withEachPeer runs a test against every peer, each on an empty server.
func withEachPeer(t *testing.T, test func(t *testing.T, w world)) {
	server := redistest.Start(t)
	backend, err := lockredis.New(lockredis.Config{
		Addrs: []lockredis.Address{lockredis.Unix(server.Socket())}, KeyPrefix: "lock:", StoreTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	for _, p := range peers(t, server.Socket()) {
		t.Run(p.name, func(t *testing.T) {
			server.Do("FLUSHALL")
			test(t, world{server, backend, p})
		})
	}
}

func (w world) claim(keep time.Duration) locker.Claim {
	return locker.Claim{
		Key: key, Token: locker.NewToken(pod), Holder: pod,
		Keep: keep, NotAfter: locker.BootTime().Add(patience),
	}
}

func (w world) release(t *testing.T, c locker.Claim, keep time.Duration) error {
	return w.backend.Release(t.Context(), []locker.Surrender{{Key: c.Key, Token: c.Token, Holder: pod, Keep: keep}})[0].Err
}

func (w world) renew(t *testing.T, c locker.Claim) error {
	return w.backend.Renew(t.Context(), []locker.Renewal{
		{Key: c.Key, Token: c.Token, Keep: long, NotAfter: locker.BootTime().Add(patience)},
	})[0].Err
}

func (w world) weTake(t *testing.T, keep time.Duration) locker.Claim {
	t.Helper()
	c := w.claim(keep)
	if _, err := w.backend.Acquire(t.Context(), c); err != nil {
		t.Fatalf("we cannot take it: %v", err)
	}
	return c
}

func (w world) theyTake(t *testing.T, ttl time.Duration) peerLock {
	t.Helper()
	lock, err := w.peer.lock(t.Context(), name, ttl)
	if err != nil {
		t.Fatalf("they cannot take it: %v", err)
	}
	return lock
}

func (w world) theyAreRefused(t *testing.T) {
	t.Helper()
	if _, err := w.peer.lock(t.Context(), name, long); !errors.Is(err, errHeld) {
		t.Fatalf("they ask for what is held: %v, want %v", err, errHeld)
	}
}

// weAreRefused checks that we are, and are told of no holder.
func (w world) weAreRefused(t *testing.T) {
	t.Helper()
	_, err := w.backend.Acquire(t.Context(), w.claim(long))
	var held *locker.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("we ask for what is held: %v, want a HeldError", err)
	}
	wantNameless(t, held.Occupancy)
}

func wantNameless(t *testing.T, o locker.Occupancy) {
	t.Helper()
	if o.State != locker.OccupancyHeld || o.Holder != nil || o.ExpiresIn <= 0 || o.ExpiresIn > long {
		t.Errorf("told %+v, want held for up to %v without a holder", o, long)
	}
}

func want(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// untouched checks that a call leaves the value at the name and its TTL alone.
func (w world) untouched(t *testing.T, call func()) {
	t.Helper()
	value, ttl := w.value(t), w.PTTL(name)
	call()
	if w.value(t) != value {
		t.Error("the value was changed")
	}
	if left := w.PTTL(name); left > ttl || left < ttl-patience {
		t.Errorf("the TTL was changed from %v to %v", ttl, left)
	}
}

func (w world) value(t *testing.T) string {
	t.Helper()
	value, ok := w.Get(name)
	if !ok {
		t.Fatal("there is nothing at the name")
	}
	return value
}

func TestTheirLockKeepsUsOutUntilTheyUnlock(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		lock := w.theyTake(t, long)
		w.untouched(t, func() {
			w.weAreRefused(t)
			o, err := w.backend.Inspect(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			wantNameless(t, o)
			c := w.claim(long)
			want(t, "our renewal", w.renew(t, c), locker.ErrTaken)
			want(t, "our release", w.release(t, c, 0), locker.ErrTaken)
			want(t, "our release with a minimum hold", w.release(t, c, long), locker.ErrTaken)
			want(t, "our note", w.backend.Annotate(t.Context(), key, c.Token, "ours"), locker.ErrTaken)
		})
		want(t, "their extension", lock.extend(t.Context()), nil)
		w.weAreRefused(t)
		want(t, "their unlock", lock.unlock(t.Context()), nil)
		w.weTake(t, long)
	})
}

func TestOurLockKeepsThemOutUntilWeRelease(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		c := w.weTake(t, long)
		w.untouched(t, func() { w.theyAreRefused(t) })
		want(t, "our renewal", w.renew(t, c), nil)
		w.theyAreRefused(t)
		want(t, "our release", w.release(t, c, 0), nil)
		w.theyTake(t, long)
	})
}

func TestOurMinimumHoldKeepsThemOutUntilItIsOver(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		c := w.weTake(t, long)
		want(t, "our release", w.release(t, c, short), nil)
		w.theyAreRefused(t)
		w.waitForExpiry(t)
		w.theyTake(t, long)
	})
}

func TestWhatTheyLetExpireIsOursAndNoLongerTheirs(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		lock := w.theyTake(t, short)
		w.waitForExpiry(t)
		c := w.weTake(t, long)
		w.untouched(t, func() {
			want(t, "their late extension", lock.extend(t.Context()), errNotHeld)
			want(t, "their late unlock", lock.unlock(t.Context()), errNotHeld)
		})
		want(t, "our renewal", w.renew(t, c), nil)
	})
}

func TestWhatWeLetExpireIsTheirsAndNoLongerOurs(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		c := w.weTake(t, short)
		w.waitForExpiry(t)
		lock := w.theyTake(t, long)
		w.untouched(t, func() {
			want(t, "our late renewal", w.renew(t, c), locker.ErrTaken)
			want(t, "our late release", w.release(t, c, 0), locker.ErrTaken)
			want(t, "our late release with a minimum hold", w.release(t, c, 2*long), locker.ErrTaken)
			_, err := w.backend.Acquire(t.Context(), c)
			if err == nil || !locker.CertainNo(err) {
				t.Errorf("our claim, sent again: %v, want a no", err)
			}
		})
		want(t, "their unlock", lock.unlock(t.Context()), nil)
	})
}

func TestFencesRiseOverTheirLocks(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		var last locker.Fence
		for range 3 {
			c := w.claim(long)
			grant, err := w.backend.Acquire(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if grant.Fence <= last {
				t.Errorf("fence %d after %d", grant.Fence, last)
			}
			last = grant.Fence
			want(t, "our release", w.release(t, c, 0), nil)
			want(t, "their unlock", w.theyTake(t, long).unlock(t.Context()), nil)
		}
	})
}

// waitForExpiry waits until the server has let the name go.
func (w world) waitForExpiry(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); w.PTTL(name) != redistest.NoKey; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the name does not expire")
		}
	}
}

// TestNobodyIsInsideTogetherWithAnother has everybody compete for one name.
func TestNobodyIsInsideTogetherWithAnother(t *testing.T) {
	withEachPeer(t, func(t *testing.T, w world) {
		const workers, turns = 4, 25 // of each kind
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
		defer cancel()
		var inside atomic.Int32
		compete := func(try func() (leave func() error, err error)) {
			for done := 0; done < turns && ctx.Err() == nil; {
				leave, err := try()
				if errors.Is(err, errHeld) {
					time.Sleep(time.Millisecond) // as the peers do between tries
					continue
				}
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				inside.Add(-1)
				if err := leave(); err != nil {
					t.Errorf("unlock: %v", err)
				}
				done++
			}
		}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				compete(func() (func() error, error) {
					c := w.claim(long)
					_, err := w.backend.Acquire(ctx, c)
					if held := (*locker.HeldError)(nil); errors.As(err, &held) {
						err = errHeld
					}
					return func() error { return w.release(t, c, 0) }, err
				})
			})
			wg.Go(func() {
				compete(func() (func() error, error) {
					lock, err := w.peer.lock(ctx, name, long)
					return func() error { return lock.unlock(ctx) }, err
				})
			})
		}
		wg.Wait()
		if ctx.Err() != nil {
			t.Error("not everybody has had their turns in time")
		}
	})
}
