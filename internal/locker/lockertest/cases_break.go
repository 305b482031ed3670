package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// breakCases are about backends that can take a lock away from its holder.
var breakCases = []testCase{
	{"a lock that is broken is nobody's, and taken for as long as its lease could last", func(t T, h Harness) {
		b := h.breaker(t)
		since := h.Now()
		c := h.claim("k", long)
		grant, err := h.acquire(t, c)
		if err != nil {
			t.Fatal(err)
		}
		s := b.sight(t, "k")
		if s.State != locker.OccupancyHeld || s.Token != c.Token {
			t.Errorf("sighted %q, and the holder's token: %v", s.State, s.Token == c.Token)
		}
		wantHolder(t, s.Occupancy, note, grant)

		left := b.mustBreak(t, "k", s)
		h.wantLeft(t, "k", long, since)
		if left > long || left < long-h.Now().Sub(since)-rounding {
			t.Errorf("told that %v of %v are left", left, long)
		}
		for what, keep := range map[string]time.Duration{"verify": 0, "renew": 10 * long} {
			wantErr(t, what, h.renew(t, h.renewal(c, keep))[0], locker.ErrTaken)
		}
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], locker.ErrTaken)
		wantErr(t, "release early", h.release(t, surrender(c, 10*long))[0], locker.ErrTaken)
		_, err = h.acquire(t, c)
		wantRefused(t, "the claim sent again", err)
		h.wantLeft(t, "k", long, since)

		o := h.mustBeHeld(t, "k")
		for _, told := range []locker.Occupancy{o, h.inspect(t, "k"), b.sight(t, "k").Occupancy} {
			if told.State != locker.OccupancyBroken || told.ExpiresIn <= long/2 || told.ExpiresIn > long {
				t.Errorf("told %q for %v", told.State, told.ExpiresIn)
			}
			wantHolder(t, told, note, grant)
		}
	}},
	{"a lock that is broken is free when its lease would have ended, and fences rise", func(t T, h Harness) {
		b := h.breaker(t)
		c, fence := h.take(t, "k", short)
		b.mustBreak(t, "k", b.sight(t, "k"))
		h.mustBeHeld(t, "k")
		time.Sleep(short + rounding)
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
		if _, next := h.take(t, "k", long); next <= fence {
			t.Errorf("fence %d after %d", next, fence)
		}
	}},
	{"breaking again is a success again and changes nothing", func(t T, h Harness) {
		b := h.breaker(t)
		since := h.Now()
		h.take(t, "k", long)
		s := b.sight(t, "k")
		first := b.mustBreak(t, "k", s)
		var slack time.Duration
		if h.votesSlowly() {
			slack = rounding // it may be other servers that answer first
		}
		if again := b.mustBreak(t, "k", s); again > first+slack {
			t.Errorf("%v left, after %v", again, first)
		}
		h.wantLeft(t, "k", long, since)
	}},
	{"only what was sighted is broken", func(t T, h Harness) {
		b := h.breaker(t)
		first, _ := h.take(t, "k", long)
		s := b.sight(t, "k")
		h.mustRelease(t, first)
		if free := b.sight(t, "k"); free.State != locker.OccupancyFree || free.Token != (locker.Token{}) {
			t.Errorf("a free key is sighted as %q", free.State)
		}
		_, err := b.tear(t, "k", s)
		wantErr(t, "break a free key", err, locker.ErrGone)
		h.mustBeFree(t, "k")

		since := h.Now()
		second, _ := h.take(t, "k", long)
		_, err = b.tear(t, "k", s)
		wantErr(t, "break the next holder's", err, locker.ErrTaken)
		h.mustBeOurs(t, second)
		h.wantLeft(t, "k", long, since)
	}},
	{"another library's lock can be broken, and what is no lock can not", func(t T, h Harness) {
		b := h.breaker(t)
		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, long)
		s := b.sight(t, "k")
		if s.State != locker.OccupancyHeld || s.Holder != nil {
			t.Errorf("sighted as %q of %+v", s.State, s.Holder)
		}
		b.mustBreak(t, "k", s)
		if o := h.inspect(t, "k"); o.State != locker.OccupancyBroken || o.Holder != nil || o.Mark == 0 {
			t.Errorf("told %q of %+v, with the mark %d", o.State, o.Holder, o.Mark)
		}

		h.Put("k", stranger, 0)
		_, err := b.Sight(t.Context(), "k")
		wantErr(t, "sight what has no TTL", err, locker.ErrKeyConflict)
		_, err = b.tear(t, "k", s)
		wantErr(t, "break what has no TTL", err, locker.ErrKeyConflict)
		h.wantValue(t, "k", stranger)
	}},
	{"the line of a lock that is broken stays as it is, and is served when its time is over", func(t T, h Harness) {
		b := h.breaker(t)
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", short)
		first, second := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		s := b.sight(t, "k")
		if s.QueueLength != 2 {
			t.Errorf("sighted with %d in line, want 2", s.QueueLength)
		}
		b.mustBreak(t, "k", s)
		h.wantLine(t, "k", 2)
		if o := h.mustBeHeld(t, "k"); o.QueueLength != 2 {
			t.Errorf("%d in line, want 2", o.QueueLength)
		}
		for i, c := range []*caller{first, second} {
			if c.process.count(locker.HintWake) > 0 {
				t.Errorf("process %d was woken, though a lock that is broken is not free", i)
			}
		}
		time.Sleep(short + rounding)
		h.wantNoOvertaking(t, "k", 2)
		first.mustGet(t, 0)
		h.mustRelease(t, first.claim)
		second.mustGet(t, 0)
	}},
	{"a caller who has left is not told that a lock was broken or was not", func(t T, h Harness) {
		b := h.breaker(t)
		h.take(t, "k", long)
		s := b.sight(t, "k")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller left"))
		if _, err := b.Sight(ctx, "k"); err == nil {
			t.Error("a sighting was answered")
		}
		_, err := b.Break(ctx, locker.Breach{Key: "k", Token: s.Token, Holder: pod})
		wantUndecided(t, "break", err)
	}},
}

// breaker is the backend with short ways to ask it.
type breaker struct{ locker.Breaker }

func (h Harness) breaker(t T) breaker {
	t.Helper()
	b, ok := h.Backend.(locker.Breaker)
	need(t, "Breaker", ok)
	return breaker{b}
}

func (b breaker) sight(t T, key locker.Key) locker.Sighting {
	t.Helper()
	s, err := b.Sight(t.Context(), key)
	if err != nil {
		t.Fatalf("sight %q: %v", key, err)
	}
	return s
}

// tear breaks what was sighted.
func (b breaker) tear(t T, key locker.Key, s locker.Sighting) (time.Duration, error) {
	t.Helper()
	breach := locker.Breach{Key: key, Token: s.Token}
	if s.Holder != nil {
		breach.Holder = s.Holder.Pod
	}
	return b.Break(t.Context(), breach)
}

func (b breaker) mustBreak(t T, key locker.Key, s locker.Sighting) (left time.Duration) {
	t.Helper()
	left, err := b.tear(t, key, s)
	if err != nil {
		t.Fatalf("break %q: %v", key, err)
	}
	return left
}
