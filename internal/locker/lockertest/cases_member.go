package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// memberCases are about backends that can be one of several which decide by
// majority.
var memberCases = []testCase{
	{"a lock that was lost is put back for as long as asked, with its fence, and is its holder's again", func(t T, h Harness) {
		m := h.member(t)
		need(t, "Delete", h.Delete != nil)
		c, fence := h.take(t, "k", long)
		h.Delete("k")
		since := h.Now()
		wantErr(t, "heal", m.heal(t, h.remedy(c, fence+aDay, long/2)), nil)
		h.wantLeft(t, "k", long/2, since)
		o := h.mustBeHeld(t, "k")
		if o.Holder == nil || o.Holder.Pod != pod || o.Holder.Note != note {
			t.Errorf("told of holder %+v, want %q with its note", o.Holder, pod)
		}
		if again := h.mustAcquire(t, c); again != fence+aDay {
			t.Errorf("the claim sent again gets fence %d, want that of the remedy, %d", again, fence+aDay)
		}
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], nil)
		h.mustRelease(t, c)
		if _, next := h.take(t, "k", long); next <= fence+aDay {
			t.Errorf("fence %d after %d", next, fence+aDay)
		}
	}},
	{"a lock is put back where nothing is known of it", func(t T, h Harness) {
		m := h.member(t)
		_, seen := h.take(t, "other", long)
		c := h.claim("k", long)
		wantErr(t, "heal", m.heal(t, h.remedy(c, seen+aDay, long)), nil)
		h.mustBeOurs(t, c)
		wantErr(t, "release by a stranger", h.release(t, surrender(h.claim("k", long), 0))[0], locker.ErrTaken)
		h.mustRelease(t, c)
		if _, next := h.take(t, "k", long); next <= seen+aDay {
			t.Errorf("fence %d after %d", next, seen+aDay)
		}
	}},
	{"a lock that is still there is left alone by a remedy", func(t T, h Harness) {
		m := h.member(t)
		since := h.Now()
		c, fence := h.take(t, "k", long)
		wantErr(t, "heal", m.heal(t, h.remedy(c, fence, 10*long)), nil)
		h.wantLeft(t, "k", long, since)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("fence %d, was %d", again, fence)
		}
	}},
	{"a remedy never takes what another has", func(t T, h Harness) {
		m := h.member(t)
		since := h.Now()
		c, fence := h.take(t, "k", long)
		wantErr(t, "heal", m.heal(t, h.remedy(h.claim("k", long), fence, 10*long)), locker.ErrTaken)
		h.wantLeft(t, "k", long, since)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("the holder's fence is now %d, was %d", again, fence)
		}
		wantErr(t, "release", h.release(t, surrender(c, long))[0], nil)
		wantErr(t, "heal over a minimum hold", m.heal(t, h.remedy(c, fence, long)), locker.ErrTaken)
		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, 0)
		wantErr(t, "heal over a value without TTL", m.heal(t, h.remedy(c, fence, long)), locker.ErrTaken)
		h.wantValue(t, "k", stranger)
	}},
	{"a remedy after its time puts nothing back", func(t T, h Harness) {
		m := h.member(t)
		c := h.claim("k", long)
		late := h.remedy(c, 1, long)
		late.NotAfter = h.past()
		wantErr(t, "late remedy", m.heal(t, late), locker.ErrLate)
		h.mustBeFree(t, "k")
		wantErr(t, "remedy in time", m.heal(t, h.remedy(c, 1, long)), nil)
		h.mustBeOurs(t, c)
	}},
	{"a lower fence in a remedy does not lower that of the key", func(t T, h Harness) {
		m := h.member(t)
		c, fence := h.take(t, "k", long)
		h.mustRelease(t, c)
		other := h.claim("k", long)
		wantErr(t, "heal", m.heal(t, h.remedy(other, fence-aDay, long)), nil)
		h.mustRelease(t, other)
		if _, next := h.take(t, "k", long); next <= fence {
			t.Errorf("fence %d after %d", next, fence)
		}
	}},
	{"each remedy of a batch gets the verdict of its own lock, and an empty one has none", func(t T, h Harness) {
		m := h.member(t)
		theirs, _ := h.take(t, "taken", long)
		late := h.remedy(h.claim("late", long), 1, long)
		late.NotAfter = h.past()
		lost, ours := h.claim("lost", long), h.claim("ours", long)
		h.mustAcquire(t, ours)
		got := m.healAll(t, h.remedy(h.claim("taken", long), 1, long), h.remedy(lost, 1, long), late, h.remedy(ours, 1, long))
		for i, want := range []error{locker.ErrTaken, nil, locker.ErrLate, nil} {
			wantErr(t, []string{"taken", "lost", "late", "ours"}[i], got[i], want)
		}
		for _, c := range []locker.Claim{theirs, lost, ours} {
			h.mustBeOurs(t, c)
		}
		m.healAll(t)
	}},
	{"a fence is raised for its holder alone, and the next grant is above it", func(t T, h Harness) {
		m := h.member(t)
		since := h.Now()
		c, fence := h.take(t, "k", long)
		_, err := m.raise(t, h.raising(h.claim("k", long), fence+2*aDay))
		wantErr(t, "raise another's", err, locker.ErrTaken)
		for _, to := range []locker.Fence{fence, fence + aDay, fence + aDay, fence + 1} {
			fence = max(fence, to)
			if now, err := m.raise(t, h.raising(c, to)); err != nil || now != fence {
				t.Errorf("raise to %d: %d, %v; want %d", to, now, err, fence)
			}
			if again := h.mustAcquire(t, c); again != fence {
				t.Errorf("the claim sent again gets fence %d, want %d", again, fence)
			}
		}
		h.wantLeft(t, "k", long, since)
		h.mustRelease(t, c)
		_, err = m.raise(t, h.raising(c, fence+2*aDay))
		wantErr(t, "raise what was given back", err, locker.ErrGone)
		_, next := h.take(t, "k", long)
		if next <= fence || next >= fence+aDay {
			t.Errorf("fence %d after %d", next, fence)
		}
		_, err = m.raise(t, h.raising(c, fence+2*aDay))
		wantErr(t, "raise what another has now", err, locker.ErrTaken)
	}},
	{"a fence is not raised after the time of that", func(t T, h Harness) {
		m := h.member(t)
		c, fence := h.take(t, "k", long)
		late := h.raising(c, fence+aDay)
		late.NotAfter = h.past()
		_, err := m.raise(t, late)
		wantErr(t, "late", err, locker.ErrLate)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("fence %d, was %d", again, fence)
		}
	}},
	{"a claim that may overtake gets a free key in spite of a line, which goes on", func(t T, h Harness) {
		h.member(t)
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		a, b := crowd.process(t, "a").join(t, "k"), crowd.process(t, "b").join(t, "k")
		h.mustRelease(t, holder)
		a.await(t, locker.HintWake, 1)
		h.wantNoOvertaking(t, "k", 2)
		c := h.claim("k", long)
		c.Overtake = true
		h.mustAcquire(t, c)
		a.wantAhead(t, 0, 0, 2)
		h.mustRelease(t, c)
		b.claim.Overtake = true
		b.mustGet(t, 0)
		h.wantLine(t, "k", 1)
		h.mustRelease(t, b.claim)
		a.mustGet(t, 0)
		h.wantLine(t, "k", 0)
	}},
	{"a claim that may overtake gets nothing that is held", func(t T, h Harness) {
		h.member(t)
		crowd := h.crowd(t)
		defer crowd.close()
		h.take(t, "k", long)
		a := crowd.process(t, "a").join(t, "k")
		c := h.claim("k", long)
		c.Overtake = true
		_, err := h.acquire(t, c)
		var held *locker.HeldError
		if !errors.As(err, &held) || held.Queued {
			t.Errorf("overtaking: %v, want held", err)
		}
		a.claim.Overtake = true
		a.wantAhead(t, 0, 0, 1)
	}},
	{"a quiet release frees the key and wakes nobody", func(t T, h Harness) {
		h.member(t)
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		a := crowd.process(t, "a").join(t, "k")
		s := surrender(holder, 0)
		s.Quiet = true
		wantErr(t, "release", h.release(t, s)[0], nil)
		time.Sleep(20 * time.Millisecond)
		a.wantWoken(t, 0)
		a.mustGet(t, 0)
		h.mustRelease(t, a.claim)
		h.mustBeFree(t, "k")
	}},
	{"the mark of a key is that of its value", func(t T, h Harness) {
		h.member(t)
		marks := make(map[uint64]bool)
		if o := h.inspect(t, "k"); o.Mark != 0 {
			t.Errorf("a free key has the mark %d", o.Mark)
		}
		for range 3 {
			c, _ := h.take(t, "k", long)
			o, told := h.inspect(t, "k"), h.mustBeHeld(t, "k")
			if o.Mark != locker.MarkOf(c.Token.Reveal()) || told.Mark != o.Mark || marks[o.Mark] {
				t.Errorf("marks %d and %d, want that of the token, which is new", o.Mark, told.Mark)
			}
			marks[o.Mark] = true
			h.mustRelease(t, c)
		}
	}},
	{"a caller who has already left heals and raises nothing", func(t T, h Harness) {
		m := h.member(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, fence := h.take(t, "k", long)
		for _, v := range m.Heal(ctx, []locker.Remedy{h.remedy(h.claim("free", long), 1, long)}) {
			wantUndecided(t, "heal", v.Err)
		}
		_, err := m.Raise(ctx, h.raising(c, fence+aDay))
		wantUndecided(t, "raise", err)
	}},
}

// member is a backend under test that can be one of several.
type member struct{ locker.Member }

// member skips the case if the backend cannot be one of several.
func (h Harness) member(t T) member {
	t.Helper()
	m, ok := h.Backend.(locker.Member)
	need(t, "Member", ok)
	return member{m}
}

func (h Harness) remedy(c locker.Claim, fence locker.Fence, keep time.Duration) locker.Remedy {
	return locker.Remedy{
		Key: c.Key, Token: c.Token, Fence: fence, Note: c.Note, Keep: keep, NotAfter: h.Now().Add(callDeadline),
	}
}

func (h Harness) raising(c locker.Claim, fence locker.Fence) locker.Raising {
	return locker.Raising{Key: c.Key, Token: c.Token, Fence: fence, NotAfter: h.Now().Add(callDeadline)}
}

func (m member) heal(t T, r locker.Remedy) error {
	t.Helper()
	return m.healAll(t, r)[0]
}

func (m member) healAll(t T, remedies ...locker.Remedy) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	return errorsOf(t, m.Heal(ctx, remedies), len(remedies))
}

func (m member) raise(t T, r locker.Raising) (locker.Fence, error) {
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	return m.Raise(ctx, r)
}
