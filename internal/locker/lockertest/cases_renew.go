package lockertest

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var renewCases = []testCase{
	{"a renewal sets the time left from now on, up or down", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		for _, keep := range []time.Duration{10 * long, long / 2} {
			since := h.Now()
			wantErr(t, "renew", h.renew(t, h.renewal(c, keep))[0], nil)
			h.wantLeft(t, "k", keep, since)
		}
	}},
	{"a verification confirms the lock and extends nothing", func(t T, h Harness) {
		since := h.Now()
		c, _ := h.take(t, "k", long)
		time.Sleep(20 * time.Millisecond)
		h.mustBeOurs(t, c)
		h.wantLeft(t, "k", long, since)
		if h.PTTL != nil && h.PTTL("k") > long-20*time.Millisecond+rounding {
			t.Errorf("verified, and lives %v again", h.PTTL("k"))
		}
	}},
	{"a renewal never creates a key", func(t T, h Harness) {
		never := h.claim("never", long)
		released, _ := h.take(t, "released", long)
		h.mustRelease(t, released)
		for _, c := range []locker.Claim{never, released} {
			wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
			wantErr(t, "verify", h.renew(t, h.renewal(c, 0))[0], locker.ErrGone)
			h.mustBeFree(t, c.Key)
		}
	}},
	{"a renewal of another's lock is taken and extends nothing", func(t T, h Harness) {
		since := h.Now()
		c, _ := h.take(t, "k", long)
		stranger := h.claim("k", long)
		wantErr(t, "renew", h.renew(t, h.renewal(stranger, 10*long))[0], locker.ErrTaken)
		wantErr(t, "verify", h.renew(t, h.renewal(stranger, 0))[0], locker.ErrTaken)
		h.wantLeft(t, "k", long, since)
		h.mustBeOurs(t, c)
	}},
	{"each renewal of a batch gets the verdict of its own lock", func(t T, h Harness) {
		since := h.Now()
		ours, _ := h.take(t, "ours", long)
		verified, _ := h.take(t, "verified", long)
		late, _ := h.take(t, "late", long)
		theirs, _ := h.take(t, "taken", long)
		released, _ := h.take(t, "released", long)
		h.mustRelease(t, released)

		lateRenewal := h.renewal(late, 10*long)
		lateRenewal.NotAfter = h.past()
		extended := h.Now()
		got := h.renew(t,
			h.renewal(h.claim("taken", long), 10*long),
			h.renewal(h.claim("ours", long), 0),
			h.renewal(ours, 10*long),
			h.renewal(released, 10*long),
			lateRenewal,
			h.renewal(h.claim("never", long), 0),
			h.renewal(verified, 0),
		)
		for i, want := range []error{locker.ErrTaken, locker.ErrTaken, nil, locker.ErrGone, locker.ErrLate, locker.ErrGone, nil} {
			wantErr(t, []string{"taken", "ours, with another token", "ours", "released", "late", "never", "verified"}[i], got[i], want)
		}
		h.wantLeft(t, "ours", 10*long, extended)
		for _, c := range []locker.Claim{verified, late, theirs} {
			h.wantLeft(t, c.Key, long, since)
		}
	}},
	{"an empty batch has no verdicts", func(t T, h Harness) {
		h.renew(t)
		h.release(t)
	}},
	{"a thousand locks are renewed and released in one batch each", func(t T, h Harness) {
		const n = 1000
		renewals, surrenders := make([]locker.Renewal, n), make([]locker.Surrender, n)
		for i := range n {
			c, _ := h.take(t, numbered(i), long)
			renewals[i], surrenders[i] = h.renewal(c, 2*long), surrender(c, 0)
		}
		since := h.Now()
		for i, err := range h.renew(t, renewals...) {
			if err != nil {
				t.Fatalf("renewal %d: %v", i, err)
			}
		}
		for _, i := range []int{0, n / 2, n - 1} {
			h.wantLeft(t, numbered(i), 2*long, since)
		}
		for i, err := range h.release(t, surrenders...) {
			if err != nil {
				t.Fatalf("release %d: %v", i, err)
			}
		}
		for i := range n {
			if _, err := h.acquire(t, h.claim(numbered(i), long)); err != nil {
				t.Fatalf("acquire %q after the release: %v", numbered(i), err)
			}
		}
	}},
}
