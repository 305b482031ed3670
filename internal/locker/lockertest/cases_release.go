package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var releaseCases = []testCase{
	{"a released key is free at once", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		h.mustRelease(t, c)
		if h.CurrentValue != nil {
			if _, ok := h.CurrentValue("k"); ok {
				t.Errorf("there still is a value at the key")
			}
		}
		h.mustBeFree(t, "k")
	}},
	{"a release of what is not held is gone", func(t T, h Harness) {
		c := h.claim("k", long)
		wantErr(t, "release of a key never taken", h.release(t, surrender(c, 0))[0], locker.ErrGone)
		h.mustAcquire(t, c)
		h.mustRelease(t, c)
		wantErr(t, "second release", h.release(t, surrender(c, 0))[0], locker.ErrGone)
		wantErr(t, "release with a minimum hold", h.release(t, surrender(c, long))[0], locker.ErrGone)
		h.mustBeFree(t, "k")
	}},
	{"a release of another's lock is taken and changes nothing", func(t T, h Harness) {
		since := h.Now()
		c, fence := h.take(t, "k", long)
		stranger := h.claim("k", long)
		wantErr(t, "release", h.release(t, surrender(stranger, 0))[0], locker.ErrTaken)
		wantErr(t, "release with a minimum hold", h.release(t, surrender(stranger, 2*long))[0], locker.ErrTaken)
		h.wantLeft(t, "k", long, since)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("the holder's fence is now %d, was %d", again, fence)
		}
	}},
	{"a release that comes late does not free the next holder's lock", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		h.mustRelease(t, c)
		next, _ := h.take(t, "k", long)
		wantErr(t, "late release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
		h.mustBeOurs(t, next)
	}},
	{"each release of a batch gets the verdict of its own lock", func(t T, h Harness) {
		ours, _ := h.take(t, "ours", long)
		kept, _ := h.take(t, "kept", long)
		theirs, _ := h.take(t, "taken", long)
		got := h.release(t,
			surrender(h.claim("taken", long), 0),
			surrender(ours, 0),
			surrender(h.claim("never", long), 0),
			surrender(kept, long),
			surrender(ours, 0),
		)
		for i, want := range []error{locker.ErrTaken, nil, locker.ErrGone, nil, locker.ErrGone} {
			wantErr(t, []string{"taken", "ours", "never", "with a minimum hold", "ours once more"}[i], got[i], want)
		}
		h.mustBeFree(t, "ours")
		h.mustBeOurs(t, theirs)
		if o := h.mustBeHeld(t, "kept"); o.State != locker.OccupancyMinHold {
			t.Errorf("state %q, want min_hold", o.State)
		}
	}},
}

var minHoldCases = []testCase{
	{"a minimum hold keeps the key from everybody", func(t T, h Harness) {
		c := h.claim("k", long)
		grant, err := h.acquire(t, c)
		if err != nil {
			t.Fatal(err)
		}
		since := h.Now()
		wantErr(t, "release", h.release(t, surrender(c, long/2))[0], nil)
		h.wantLeft(t, "k", long/2, since)
		o := h.mustBeHeld(t, "k")
		if o.State != locker.OccupancyMinHold {
			t.Errorf("state %q, want min_hold", o.State)
		}
		wantHolder(t, o, note, grant)
		if h.CurrentValue != nil {
			if value, _ := h.CurrentValue("k"); value != locker.Tombstone(pod, locker.TombstoneMinHold) {
				t.Errorf("the value at the key is not the holder's tombstone")
			}
		}
		_, err = h.acquire(t, c)
		wantRefused(t, "acquire by who had it", err)
	}},
	{"a minimum hold is nobody's to renew, verify or release", func(t T, h Harness) {
		since := h.Now()
		c, _ := h.take(t, "k", long)
		wantErr(t, "release", h.release(t, surrender(c, long/2))[0], nil)
		wantErr(t, "late renewal", h.renew(t, h.renewal(c, 10*long))[0], locker.ErrTaken)
		wantErr(t, "late verification", h.renew(t, h.renewal(c, 0))[0], locker.ErrTaken)
		wantErr(t, "second release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
		wantErr(t, "second release with a minimum hold", h.release(t, surrender(c, 10*long))[0], locker.ErrTaken)
		if o := h.mustBeHeld(t, "k"); o.State != locker.OccupancyMinHold {
			t.Errorf("state %q, want min_hold", o.State)
		}
		h.wantLeft(t, "k", long/2, since)
	}},
	{"a key is free once its minimum hold is over", func(t T, h Harness) {
		c, first := h.take(t, "k", long)
		wantErr(t, "release", h.release(t, surrender(c, short/4))[0], nil)
		time.Sleep(short/4 + rounding)
		_, err := h.acquire(t, c)
		wantErr(t, "acquire by who had it", err, locker.ErrSpent)
		if _, fence := h.take(t, "k", long); fence <= first {
			t.Errorf("fence %d after %d", fence, first)
		}
	}},
}
