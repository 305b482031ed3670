package memory

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// attempt is a claim and what it finds.
type attempt struct {
	locker.Claim
	row  row
	now  locker.Instant
	wall time.Time
}

func (b *Backend) attemptLocked(c locker.Claim) attempt {
	now := b.now()
	return attempt{Claim: c, row: b.rows.get(c.Key, now), now: now, wall: b.wall()}
}

func (a attempt) reading() locker.Reading { return locker.Reading{UnixMicro: a.wall.UnixMicro()} }

// errNoRecord is the answer to a claim whose token is at the key though it was
// never granted here: somebody else wrote it.
var errNoRecord = &locker.StoreError{
	Reason: locker.StoreFailed, Err: errors.New("the claim's token is at the key, and the record of its grant is not there"),
}

// settled gives the answers in which it does not matter who waits: those to a
// claim that is late, that was granted before, or that meets no lock. done is
// false if there is none: then another has the key, or it is free and the
// claim may be granted.
func (a attempt) settled() (g locker.Grant, done bool, err error) {
	ours, granted := a.row.heldBy(a.Token), a.row.grant.token == a.Token.Reveal()
	switch {
	case a.now > a.NotAfter:
		return locker.Grant{}, true, locker.ErrLate
	case a.row.foreverTaken():
		return locker.Grant{}, true, locker.ErrKeyConflict
	case ours && granted:
		return a.granted(), true, nil
	case ours:
		return locker.Grant{}, true, errNoRecord
	case granted && !a.row.taken():
		return locker.Grant{}, true, locker.ErrSpent
	}
	return locker.Grant{}, false, nil
}

// granted tells of the row's grant, which is the claim's.
func (a attempt) granted() locker.Grant {
	return locker.Grant{Fence: a.row.grant.fence, Left: a.row.until.Sub(a.now)}
}

// tryLocked answers a claim that does not wait. It overtakes nobody.
func (b *Backend) tryLocked(a attempt) (locker.Grant, error) {
	if g, done, err := a.settled(); done {
		return g, err
	}
	free := !a.row.taken()
	l := b.lines.get(a.Key, a.now)
	l.dropDead(a.now)
	if free && !a.Overtake {
		b.wakeOnceLocked(a.Key, l, a.now)
	}
	b.tellNearLocked(a.Key, l)
	if free && (len(l.places) == 0 || a.Overtake) {
		return b.grantLocked(a, l)
	}
	return locker.Grant{}, a.refusal(l)
}

// refusal tells who has the key and how many wait for it.
func (a attempt) refusal(l *line) *locker.HeldError {
	o := a.row.occupancy(a.now)
	o.QueueLength = len(l.places)
	return &locker.HeldError{Occupancy: o, Queued: !a.row.taken()}
}

// grantLocked grants the claim a free key, or certainly refuses it.
func (b *Backend) grantLocked(a attempt, l *line) (locker.Grant, error) {
	fence, err := nextFence(a.row.grant.fence, a.wall, a.Floor)
	if err != nil {
		return locker.Grant{}, err
	}
	r, token := a.row, a.Token.Reveal()
	r.hold(token, a.now, a.Keep)
	r.grant = grant{token: token, fence: fence, since: a.wall, note: a.Note, forgetAt: r.until.Add(remember)}
	b.rows.add(a.Key, r, a.now)
	l.silent = 0
	a.row = r
	return a.granted(), nil
}
