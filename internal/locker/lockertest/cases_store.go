package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// stranger is a value such as other lock libraries write.
const stranger = "b1946ac9-2a4e-4c6f-9d0b-6f6c1c1d3a55"

var strangerCases = []testCase{
	{"a lock of another library is respected and not spoken of", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		for _, value := range []string{stranger, "ls1", "ls2/pod/ABC", "1"} {
			since := h.Now()
			h.Put("k", value, long)
			o := h.mustBeHeld(t, "k")
			if o.State != locker.OccupancyHeld || o.Holder != nil {
				t.Errorf("told %+v, want held without a holder", o)
			}
			c := h.claim("k", long)
			wantErr(t, "renew", h.renew(t, h.renewal(c, 2*long))[0], locker.ErrTaken)
			wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
			h.wantLeft(t, "k", long, since)
			h.wantValue(t, "k", value)
		}
	}},
	{"a lock of another library is free once it has expired", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, short/4)
		time.Sleep(short/4 + rounding)
		h.mustBeFree(t, "k")
	}},
	{"a value without TTL is a conflict and is never touched", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		for _, value := range []string{stranger, "42", locker.Tombstone(pod, locker.TombstoneMinHold)} {
			h.Put("k", value, 0)
			c := h.claim("k", long)
			_, err := h.acquire(t, c)
			wantErr(t, "acquire", err, locker.ErrKeyConflict)
			wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrTaken)
			wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
			h.wantValue(t, "k", value)
			if h.PTTL != nil && h.PTTL("k") != 0 {
				t.Errorf("the value was given a TTL of %v", h.PTTL("k"))
			}
		}
	}},
	{"a lock that another has overwritten is not ours any more", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		c, _ := h.take(t, "k", long)
		since := h.Now()
		h.Put("k", stranger, long)
		wantErr(t, "verify", h.renew(t, h.renewal(c, 0))[0], locker.ErrTaken)
		wantErr(t, "renew", h.renew(t, h.renewal(c, 2*long))[0], locker.ErrTaken)
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
		_, err := h.acquire(t, c)
		wantRefused(t, "acquire again", err)
		h.wantValue(t, "k", stranger)
		h.wantLeft(t, "k", long, since)
		if o := h.mustBeHeld(t, "k"); o.Holder != nil {
			t.Errorf("told of holder %+v, who has it no more", o.Holder)
		}
	}},
	{"a claim whose token is at the key without a record is never refused as if another had it", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		c := h.claim("k", long)
		since := h.Now()
		h.Put("k", c.Token.Reveal(), long)
		if _, err := h.acquire(t, c); locker.CertainNo(err) {
			t.Errorf("acquire: %v, want a grant or an unknown outcome", err)
		}
		h.wantLeft(t, "k", long, since)
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], nil)
		h.mustBeFree(t, "k")
	}},
	{"a broken lock is taken from its holder and free when its time is over", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		c, _ := h.take(t, "k", long)
		h.Put("k", locker.Tombstone("operator", locker.TombstoneBroken), short/2)
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrTaken)
		h.mustBeHeld(t, "k")
		time.Sleep(short/2 + rounding)
		h.mustBeFree(t, "k")
	}},
}

var dataLossCases = []testCase{
	{"a lock whose key was deleted is gone, and its claim is spent", func(t T, h Harness) {
		need(t, "Delete", h.Delete != nil)
		c, first := h.take(t, "k", long)
		h.Delete("k")
		wantErr(t, "verify", h.renew(t, h.renewal(c, 0))[0], locker.ErrGone)
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrGone)
		_, err := h.acquire(t, c)
		wantErr(t, "acquire again", err, locker.ErrSpent)
		if _, fence := h.take(t, "k", long); fence <= first {
			t.Errorf("fence %d after %d", fence, first)
		}
	}},
	{"after a loss of all data locks are gone and fences go on from the floor", func(t T, h Harness) {
		need(t, "Wipe", h.Wipe != nil)
		c := h.claim("k", long)
		_, seen := h.take(t, "other", long)
		c.Floor = seen + aDay // another's clock was ahead by as much
		before := h.mustAcquire(t, c)
		h.Wipe()
		wantErr(t, "verify", h.renew(t, h.renewal(c, 0))[0], locker.ErrGone)
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrGone)

		next := h.claim("k", long)
		next.Floor = before + 1
		if fence := h.mustAcquire(t, next); fence <= before {
			t.Errorf("fence %d after %d", fence, before)
		}
		h.mustBeOurs(t, next)
		wantErr(t, "renew what another has", h.renew(t, h.renewal(c, long))[0], locker.ErrTaken)
	}},
	{"fences rise by the store's clock though all data was lost and no floor is known", func(t T, h Harness) {
		need(t, "Wipe", h.Wipe != nil)
		_, before := h.take(t, "k", long)
		h.Wipe()
		time.Sleep(time.Millisecond)
		if _, fence := h.take(t, "k", long); fence <= before {
			t.Errorf("fence %d after %d", fence, before)
		}
	}},
}

func (h Harness) wantValue(t T, key locker.Key, want string) {
	t.Helper()
	if h.CurrentValue == nil {
		return
	}
	if value, _ := h.CurrentValue(key); value != want {
		t.Errorf("the value at %q was changed", key)
	}
}
