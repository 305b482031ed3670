package memory

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// remember is how long the last grant of a key is known after it has ended:
// until then its claim, sent again, is refused, and fences go on from its own.
const remember = 5 * time.Minute

// minKeep is the least time a key is kept, as it is in Redis, where a
// PEXPIRE of 0 deletes.
const minKeep = time.Millisecond

// row is what is known of one key.
type row struct {
	value string         // a token, a tombstone or a stranger's value; "" if free
	until locker.Instant // when the value expires; never if 0
	grant grant
}

// grant is the last grant of a key. It outlives the value.
type grant struct {
	token    string
	fence    locker.Fence
	since    time.Time
	note     string
	forgetAt locker.Instant
}

func (r row) taken() bool { return r.value != "" }

// foreverTaken tells whether the value has no TTL, and so is not a lock.
func (r row) foreverTaken() bool { return r.taken() && r.until == 0 }

func (r row) heldBy(token locker.Token) bool { return r.taken() && r.value == token.Reveal() }

func (r *row) hold(value string, now locker.Instant, keep time.Duration) {
	r.value, r.until = value, now.Add(max(keep, minKeep))
}

func (r *row) free() { r.value, r.until = "", 0 }

// table holds the rows. It has no timers: what has expired is dropped when it
// is looked at, and all of it in a sweep every so many grants, so that the
// table never grows beyond twice what was worth keeping, plus 2*sweepLeast.
type table struct {
	rows   map[locker.Key]row
	grants int // since the last sweep
}

const sweepLeast = 64

// get returns the row as it is at now; a zero row for an unknown key.
func (t *table) get(key locker.Key, now locker.Instant) row {
	r := t.rows[key]
	if r.until != 0 && now >= r.until {
		r.free()
	}
	if now >= r.grant.forgetAt {
		r.grant = grant{}
	}
	return r
}

// held returns the key's row if the token holds it, else ErrTaken or ErrGone.
func (t *table) held(key locker.Key, token locker.Token, now locker.Instant) (row, error) {
	r := t.get(key, now)
	switch {
	case !r.taken():
		return row{}, locker.ErrGone
	case !r.heldBy(token):
		return row{}, locker.ErrTaken
	}
	return r, nil
}

// set replaces a row.
func (t *table) set(key locker.Key, r row) {
	if t.rows == nil {
		t.rows = make(map[locker.Key]row)
	}
	t.rows[key] = r
}

// add sets a row that may be new, and sweeps when it is time.
func (t *table) add(key locker.Key, r row, now locker.Instant) {
	t.set(key, r)
	if t.grants++; t.grants < sweepLeast+len(t.rows)/2 {
		return
	}
	// A new map, since Go's maps never shrink.
	kept := make(map[locker.Key]row)
	for key := range t.rows {
		if r := t.get(key, now); r != (row{}) {
			kept[key] = r
		}
	}
	t.rows, t.grants = kept, 0
}
