package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func remedyFor(c locker.Claim, fence locker.Fence) locker.Remedy {
	return locker.Remedy{Key: c.Key, Token: c.Token, Fence: fence, Keep: c.Keep, NotAfter: soon()}
}

func TestHealingTakesNothingThatIsNotAFreeKey(t *testing.T) {
	server := redistest.Start(t)
	b := open(t, server, Config{})
	server.Do("RPUSH", testPrefix+string(testKey), "x")
	if err := b.Heal(t.Context(), []locker.Remedy{remedyFor(claimFor(testKey), 1)})[0].Err; !errors.Is(err, locker.ErrTaken) {
		t.Errorf("heal over a list: %v, want %v", err, locker.ErrTaken)
	}
	if _, err := b.Raise(t.Context(), locker.Raising{Key: testKey, Token: claimFor(testKey).Token, Fence: 1, NotAfter: soon()}); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("raise of a list: %v, want %v", err, locker.ErrTaken)
	}

	c := claimFor("bad-fence")
	server.Do("HSET", b.keys.record(c.Key), "fence", "9007199254740993")
	wantStoreError(t, "heal over a mad fence", b.Heal(t.Context(), []locker.Remedy{remedyFor(c, 1)})[0].Err, locker.StoreFailed, true)
	if _, there := server.Get(b.keys.lock(c.Key)); there {
		t.Error("the lock was written in spite of the error")
	}
}

func TestAFenceIsNotRaisedWithoutTheRecordOfTheGrant(t *testing.T) {
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	grant := mustAcquire(t, b, c)
	server.Do("DEL", b.keys.record(testKey))
	_, err := b.Raise(t.Context(), locker.Raising{Key: testKey, Token: c.Token, Fence: grant.Fence + 1, NotAfter: soon()})
	wantStoreError(t, "raise", err, locker.StoreFailed, true)
	if keys := server.Keys("*grant*"); len(keys) != 0 {
		t.Errorf("a record was written: %v", keys)
	}
}

// A server whose clock was set back, or that is another one behind the same
// address, would take what comes for late.
func TestHealingAndRaisingLearnTheServersClockAnew(t *testing.T) {
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c, other := claimFor(testKey), claimFor("other")
	grant := mustAcquire(t, b, c)
	misjudge := func() {
		clock := only(b).clock
		clock.mu.Lock()
		defer clock.mu.Unlock()
		clock.lo, clock.hi = clock.lo-int64(time.Minute), clock.hi-int64(time.Minute)
	}
	misjudge()
	if _, err := b.Raise(t.Context(), locker.Raising{Key: testKey, Token: c.Token, Fence: grant.Fence + 1, NotAfter: soon()}); err != nil {
		t.Errorf("raise: %v", err)
	}
	misjudge()
	if err := b.Heal(t.Context(), []locker.Remedy{remedyFor(other, grant.Fence)})[0].Err; err != nil {
		t.Errorf("heal: %v", err)
	}
}
