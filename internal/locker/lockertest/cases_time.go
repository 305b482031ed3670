package lockertest

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var expiryCases = []testCase{
	{"a key that nobody renews is free once its time is over", func(t T, h Harness) {
		c, first := h.take(t, "k", short/4)
		time.Sleep(short/4 + rounding)
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
		wantErr(t, "verify", h.renew(t, h.renewal(c, 0))[0], locker.ErrGone)
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrGone)
		_, err := h.acquire(t, c)
		wantErr(t, "acquire again", err, locker.ErrSpent)

		next, fence := h.take(t, "k", long)
		if fence <= first {
			t.Errorf("fence %d after %d", fence, first)
		}
		wantErr(t, "renew what another has", h.renew(t, h.renewal(c, long))[0], locker.ErrTaken)
		wantErr(t, "release what another has", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
		h.mustBeOurs(t, next)
	}},
	{"a renewed key outlives its first TTL and no more than its last", func(t T, h Harness) {
		c, _ := h.take(t, "k", short)
		wantErr(t, "renew", h.renew(t, h.renewal(c, 2*short))[0], nil)
		time.Sleep(short + rounding)
		h.mustBeOurs(t, c)
		h.mustBeHeld(t, "k")
		time.Sleep(short + rounding)
		h.mustBeFree(t, "k")
	}},
	{"a key that is only verified goes at its TTL", func(t T, h Harness) {
		c, _ := h.take(t, "k", short)
		since := h.Now()
		for h.Now().Sub(since) < short/2 {
			h.mustBeOurs(t, c)
			time.Sleep(short / 10)
		}
		time.Sleep(short/2 + rounding)
		h.mustBeFree(t, "k")
	}},
	{"even the shortest time takes the key", func(t T, h Harness) {
		need(t, "vote that is over by then", !h.votesSlowly())
		for _, keep := range []time.Duration{1, time.Millisecond} {
			c, first := h.take(t, "k", keep)
			time.Sleep(time.Millisecond + rounding)
			wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
			next, fence := h.take(t, "k", long)
			if fence <= first {
				t.Errorf("fence %d after %d", fence, first)
			}
			wantErr(t, "shorten to the shortest", h.renew(t, h.renewal(next, 1))[0], nil)
			time.Sleep(time.Millisecond + rounding)
		}
	}},
}

var lateCases = []testCase{
	{"a claim after its time takes nothing", func(t T, h Harness) {
		c := h.claim("k", long)
		c.NotAfter = h.past()
		for range 2 {
			_, err := h.acquire(t, c)
			wantErr(t, "late claim", err, locker.ErrLate)
		}
		if h.CurrentValue != nil {
			if _, ok := h.CurrentValue("k"); ok {
				t.Errorf("the late claim left a value at the key")
			}
		}
		c.NotAfter = h.Now().Add(callDeadline)
		h.mustAcquire(t, c)
	}},
	{"a claim after its time does not get a held key", func(t T, h Harness) {
		holder, _ := h.take(t, "k", long)
		c := h.claim("k", long)
		c.NotAfter = h.past()
		_, err := h.acquire(t, c)
		var held *locker.HeldError
		if !errors.Is(err, locker.ErrLate) && !errors.As(err, &held) {
			t.Errorf("late claim: %v, want ErrLate or a HeldError", err)
		}
		h.mustBeOurs(t, holder)
	}},
	{"a renewal after its time extends nothing and does no harm", func(t T, h Harness) {
		since := h.Now()
		c, _ := h.take(t, "k", long)
		late := h.renewal(c, 10*long)
		late.NotAfter = h.past()
		wantErr(t, "late renewal", h.renew(t, late)[0], locker.ErrLate)
		h.wantLeft(t, "k", long, since)
		wantErr(t, "renewal in time", h.renew(t, h.renewal(c, 10*long))[0], nil)
	}},
	{"a claim whose time comes to an end is late from then on", func(t T, h Harness) {
		c := h.claim("k", short/4)
		c.NotAfter = h.Now().Add(short / 2)
		h.mustAcquire(t, c)
		time.Sleep(short)
		_, err := h.acquire(t, c)
		wantErr(t, "duplicate", err, locker.ErrLate)
		h.mustBeFree(t, "k")
	}},
}
