package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestABadKeyInABatchSpoilsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	one, two := claimFor("one"), claimFor("two")
	mustAcquire(t, b, one)
	mustAcquire(t, b, two)
	server.Do("RPUSH", "lock:bad", "x")
	server.Do("DEL", b.keys.record("two"))
	server.Do("RPUSH", b.keys.record("two"), "x") // the record is none either

	for i, v := range b.Renew(t.Context(), []locker.Renewal{renewalOf(one), renewalOf(claimFor("bad")), renewalOf(two)}) {
		if want := []error{nil, locker.ErrTaken, nil}[i]; !errors.Is(v.Err, want) || v.UnixMicro == 0 {
			t.Errorf("renewal %d: %v at %d, want %v", i, v.Err, v.UnixMicro, want)
		}
	}
	for i, v := range b.Release(t.Context(), []locker.Surrender{surrenderOf(one), surrenderOf(claimFor("bad")), surrenderOf(two)}) {
		if want := []error{nil, locker.ErrTaken, nil}[i]; !errors.Is(v.Err, want) {
			t.Errorf("release %d: %v, want %v", i, v.Err, want)
		}
	}
	if server.Do("LLEN", "lock:bad") != int64(1) {
		t.Error("the foreign key was changed")
	}
}

func TestARenewalKeepsTheRecordAlive(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("PEXPIRE", recordName, 60_000)
	r := renewalOf(c)
	r.Keep = 0
	if v := b.Renew(t.Context(), []locker.Renewal{r})[0]; v.Err != nil {
		t.Fatal(v.Err)
	}
	if left := server.PTTL(recordName); left > time.Minute {
		t.Errorf("a verification extended the record to %v", left)
	}
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Fatal(err)
	}
	if left := server.PTTL(recordName); left < c.Keep+4*time.Minute {
		t.Errorf("the record lives %v, want the lease and %v", left, recordOutlives)
	}
}

func TestAMinimumHoldLeavesATombstoneThatNoRenewalRevives(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	s := surrenderOf(c)
	s.Keep = 20 * time.Second
	if v := b.Release(t.Context(), []locker.Surrender{s})[0]; v.Err != nil {
		t.Fatal(v.Err)
	}
	want := locker.Tombstone(pod, locker.TombstoneMinHold)
	if value, _ := server.Get(lockName); value != want {
		t.Errorf("the lock holds %q, want %q", value, want)
	}
	if err := renewOne(t.Context(), b, c); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("renew: %v, want taken", err)
	}
	if left := server.PTTL(lockName); left > s.Keep || left < s.Keep-5*time.Second {
		t.Errorf("the tombstone lives %v, want %v", left, s.Keep)
	}
	if left := server.PTTL(recordName); left > s.Keep+recordOutlives || left < recordOutlives {
		t.Errorf("the record lives %v, want %v more than the tombstone", left, recordOutlives)
	}
}

func TestALargeBatchIsSentInSeveralCallsAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	renewals := make([]locker.Renewal, 3*maxKeys+1)
	for i := range renewals {
		renewals[i] = renewalOf(claimFor(testKey))
	}
	mine := claimFor("mine")
	mustAcquire(t, b, mine)
	renewals[2*maxKeys] = renewalOf(mine)
	for i, v := range b.Renew(t.Context(), renewals) {
		if want := map[bool]error{false: locker.ErrGone, true: nil}[i == 2*maxKeys]; !errors.Is(v.Err, want) {
			t.Fatalf("renewal %d: %v, want %v", i, v.Err, want)
		}
	}
	if calls := only(b).renew.poolStats().Calls; calls != 4 {
		t.Errorf("%d calls, want 4", calls)
	}
}

func TestAnAnnotationNeedsItsRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("DEL", recordName)
	wantStoreError(t, "annotate", b.Annotate(t.Context(), c.Key, c.Token, "note"), locker.StoreFailed, true)
	if server.PTTL(recordName) != redistest.NoKey {
		t.Error("a record without a fence was made")
	}
	server.Do("DEL", lockName)
	server.Do("RPUSH", lockName, "x")
	if err := b.Annotate(t.Context(), c.Key, c.Token, "note"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("annotate a list: %v, want taken", err)
	}
	if o, err := b.Inspect(t.Context(), testKey); err != nil || o.State != locker.OccupancyUnknown || o.Holder != nil {
		t.Errorf("inspect a list: %+v, %v, want unknown", o, err)
	}
}
