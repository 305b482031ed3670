package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var acquireCases = []testCase{
	{"a free key is granted and kept for as long as asked", func(t T, h Harness) {
		since := h.Now()
		c, _ := h.take(t, "k", long)
		h.wantLeft(t, "k", long, since)
		if h.CurrentValue != nil {
			if value, ok := h.CurrentValue("k"); !ok || value != c.Token.Reveal() {
				t.Errorf("the store does not hold the claim's token (a value is there: %v)", ok)
			}
		}
	}},
	{"a key is kept to the millisecond", func(t T, h Harness) {
		for _, keep := range []time.Duration{30*time.Second + 999*time.Millisecond, 31*time.Second + time.Millisecond} {
			since := h.Now()
			c, _ := h.take(t, "k", keep)
			h.wantLeft(t, "k", keep, since)
			h.mustRelease(t, c)
		}
	}},
	{"a claim sent again gets its first grant and leaves the TTL alone", func(t T, h Harness) {
		since := h.Now()
		c, fence := h.take(t, "k", long)
		c.Keep *= 10
		c.Note = "another note"
		for range 3 {
			if again := h.mustAcquire(t, c); again != fence {
				t.Errorf("fence %d, want that of the first grant, %d", again, fence)
			}
		}
		h.wantLeft(t, "k", long, since)
	}},
	{"a grant tells what is left of it, also when its claim is sent again", func(t T, h Harness) {
		c := h.claim("k", long)
		ask := func() (locker.Grant, error) { return h.acquire(t, c) }
		h.wantToldTwice(t, &c, ask)
		since := h.Now()
		wantErr(t, "renew", h.renew(t, h.renewal(c, 2*long))[0], nil)
		h.wantToldOf(t, ask, 2*long, since)
	}},
	{"a claim sent again after a renewal gets its first grant", func(t T, h Harness) {
		c, fence := h.take(t, "k", long)
		since := h.Now()
		wantErr(t, "renew", h.renew(t, h.renewal(c, 2*long))[0], nil)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("fence %d, want that of the first grant, %d", again, fence)
		}
		h.wantLeft(t, "k", 2*long, since)
	}},
	{"a held key is refused with its holder, note and time left", func(t T, h Harness) {
		before := h.Now()
		c := h.claim("k", long)
		grant, err := h.acquire(t, c)
		if err != nil {
			t.Fatal(err)
		}
		o := h.mustBeHeld(t, "k")
		if o.State != locker.OccupancyHeld {
			t.Errorf("state %q, want held", o.State)
		}
		if least := long - h.Now().Sub(before) - rounding; o.ExpiresIn > long || o.ExpiresIn < least {
			t.Errorf("expires in %v, want between %v and %v", o.ExpiresIn, least, long)
		}
		wantHolder(t, o, note, grant)
		h.mustBeOurs(t, c)
	}},
	{"a claim that was granted and released is spent and takes nothing", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		h.mustRelease(t, c)
		for range 2 {
			_, err := h.acquire(t, c)
			wantErr(t, "acquire again", err, locker.ErrSpent)
		}
		h.mustBeFree(t, "k")
	}},
	{"a spent claim does not get a key that another holds", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		h.mustRelease(t, c)
		other, fence := h.take(t, "k", long)
		_, err := h.acquire(t, c)
		wantRefused(t, "acquire again", err)
		if again := h.mustAcquire(t, other); again != fence {
			t.Errorf("the holder's fence is now %d, was %d", again, fence)
		}
	}},
	{"a claim that was refused is granted once the key is free", func(t T, h Harness) {
		holder, first := h.take(t, "k", long)
		c := h.claim("k", long)
		if _, err := h.acquire(t, c); err == nil {
			t.Fatal("granted a held key")
		}
		h.mustRelease(t, holder)
		if fence := h.mustAcquire(t, c); fence <= first {
			t.Errorf("fence %d after %d", fence, first)
		}
	}},
	{"locks of other keys are independent", func(t T, h Harness) {
		a, _ := h.take(t, "a", long)
		b, _ := h.take(t, "b", long)
		h.mustRelease(t, a)
		h.mustBeOurs(t, b)
		h.mustBeFree(t, "a")
	}},
}

// wantHolder checks what a stranger is told of the lock that grant gave.
func wantHolder(t T, o locker.Occupancy, note string, grant locker.Grant) {
	t.Helper()
	if o.Holder == nil {
		t.Fatalf("the holder is not named")
	}
	if o.Holder.Pod != pod || o.Holder.Note != note {
		t.Errorf("holder %q with note %q, want %q with %q", o.Holder.Pod, o.Holder.Note, pod, note)
	}
	if grant.UnixMicro == 0 {
		return
	}
	if off := o.Holder.Since.Sub(time.UnixMicro(grant.UnixMicro)).Abs(); off > time.Second {
		t.Errorf("held since %v, %v off the store's clock at the grant", o.Holder.Since, off)
	}
}
