package lockertest

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// model says what a backend has to answer. It is written from the seam's
// comments, as plainly as possible, and knows nothing of any backend.
type model struct {
	keys map[locker.Key]*modelKey

	// slack is by how much the backend's times may differ from the model's,
	// whose clock is read before the call.
	slack time.Duration

	deaf map[string]bool // processes for which nobody listens
}

func newModel(slack time.Duration) model {
	return model{keys: make(map[locker.Key]*modelKey), slack: slack, deaf: make(map[string]bool)}
}

type modelKey struct {
	holder  locker.Token // of a lock or, if tomb, of nobody any more
	taken   bool
	tomb    bool
	expires locker.Instant

	fence   map[locker.Token]locker.Fence // of every claim that was granted
	highest locker.Fence
	last    locker.Token // what was granted last

	line   []modelPlace // in order
	silent int          // places dropped since the last grant though they were woken
}

func (m model) at(key locker.Key, now locker.Instant) *modelKey {
	k := m.keys[key]
	if k == nil {
		k = &modelKey{fence: make(map[locker.Token]locker.Fence)}
		m.keys[key] = k
	}
	if k.taken && now >= k.expires {
		k.taken = false
	}
	return k
}

func (k *modelKey) heldBy(token locker.Token) bool {
	return k.taken && !k.tomb && k.holder == token
}

// acquired compares a backend's answer to a claim with what it has to be, and
// takes it over.
func (m model) acquired(t T, c locker.Claim, grant locker.Grant, err error, now locker.Instant) {
	t.Helper()
	k := m.at(c.Key, now)
	granted, spent := k.fence[c.Token]
	var held *locker.HeldError
	switch {
	case now > c.NotAfter:
		wantErr(t, "acquire late", err, locker.ErrLate)
	case k.heldBy(c.Token):
		if err != nil || grant.Fence != granted {
			t.Errorf("acquire again: fence %d, %v; want fence %d", grant.Fence, err, granted)
			return
		}
		m.wantTold(t, k, grant, now)
	case k.taken:
		if !errors.As(err, &held) && !(spent && errors.Is(err, locker.ErrSpent)) {
			t.Errorf("acquire a taken key: %v, want a HeldError", err)
			return
		}
		k.dropDead(now)
		if held != nil {
			m.wantOccupancy(t, c.Key, held.Occupancy, now)
		}
	case spent && k.last == c.Token:
		wantErr(t, "acquire with a spent claim", err, locker.ErrSpent)
	case spent && errors.Is(err, locker.ErrSpent):
		// A backend need not remember a claim that was not the last granted.
	default:
		k.dropDead(now)
		m.wakeOnce(k, now)
		if len(k.line) == 0 {
			m.granted(t, k, c, grant, err, now)
			return
		}
		if !errors.As(err, &held) || !held.Queued || held.Standing != nil {
			t.Errorf("acquire what others are in line for: %v, want that it is queued for", err)
			return
		}
		m.wantOccupancy(t, c.Key, held.Occupancy, now)
	}
}

// granted checks for a grant of a free key, and takes it over.
func (m model) granted(t T, k *modelKey, c locker.Claim, grant locker.Grant, err error, now locker.Instant) {
	t.Helper()
	if err != nil {
		t.Errorf("acquire a free key: %v, want a grant", err)
		return
	}
	if grant.Fence <= k.highest || grant.Fence < c.Floor {
		t.Errorf("fence %d, want above %d and not below the floor %d", grant.Fence, k.highest, c.Floor)
	}
	k.taken, k.tomb, k.holder, k.last = true, false, c.Token, c.Token
	k.expires = now.Add(c.Keep)
	k.highest, k.fence[c.Token] = grant.Fence, grant.Fence
	k.silent = 0
	m.wantTold(t, k, grant, now)
}

// wantTold compares what a grant tells of its end with what is so.
func (m model) wantTold(t T, k *modelKey, grant locker.Grant, now locker.Instant) {
	t.Helper()
	if left := k.expires.Sub(now); (grant.Left - left).Abs() > m.slack {
		t.Errorf("told that %v are left, want %v", grant.Left, left)
	}
}

// verdict returns what has to be answered on a token.
func (k *modelKey) verdict(token locker.Token) error {
	switch {
	case !k.taken:
		return locker.ErrGone
	case !k.heldBy(token):
		return locker.ErrTaken
	}
	return nil
}

// renew returns the verdict that a renewal has to get, and carries it out.
func (m model) renew(r locker.Renewal, now locker.Instant) error {
	if now > r.NotAfter {
		return locker.ErrLate
	}
	k := m.at(r.Key, now)
	err := k.verdict(r.Token)
	if err == nil && r.Keep > 0 {
		k.expires = now.Add(r.Keep)
	}
	return err
}

// release returns the verdict that a surrender has to get, and carries it out.
func (m model) release(s locker.Surrender, now locker.Instant) error {
	k := m.at(s.Key, now)
	err := m.giveBack(k, s, now)
	if err == nil && !k.taken {
		m.freed(k, now)
	}
	return err
}

// giveBack is release, and wakes nobody.
func (m model) giveBack(k *modelKey, s locker.Surrender, now locker.Instant) error {
	err := k.verdict(s.Token)
	if err == nil {
		k.taken, k.tomb, k.expires = s.Keep > 0, s.Keep > 0, now.Add(s.Keep)
	}
	return err
}

// wantOccupancy compares what a backend tells of a key with what is so.
func (m model) wantOccupancy(t T, key locker.Key, o locker.Occupancy, now locker.Instant) {
	t.Helper()
	k := m.at(key, now)
	want, left := locker.OccupancyFree, time.Duration(0)
	if k.taken {
		want, left = locker.OccupancyHeld, k.expires.Sub(now)
		if k.tomb {
			want = locker.OccupancyMinHold
		}
	}
	if o.State != want || (o.ExpiresIn-left).Abs() > m.slack {
		t.Errorf("told %q for %v, want %q for %v", o.State, o.ExpiresIn, want, left)
	}
	if length := len(k.line) - k.deadHeads(now); o.QueueLength != length {
		t.Errorf("told of %d in line, want %d: %v", o.QueueLength, length, k.line)
	}
}
