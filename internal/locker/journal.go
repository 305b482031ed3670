package locker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Journal keeps records of grants where they outlive this process, so that the
// next one can take the leases up again and undo what nobody was told of.
type Journal interface {
	// Write keeps the records, in their order; the last one of a grant counts.
	// It is never called twice at once, and its caller reuses the slice.
	//
	// After an error, those that are PhaseAsking or PhaseGranted may not have
	// been kept, so nothing may be sent or told that rests on them. The others
	// are kept as soon as that is possible: what they tell of has happened, or
	// has to happen, all the same.
	Write(records []Record, floor Floor) error
}

// Phase is how far a grant has come. Each is written down before what it says
// is done.
type Phase uint8

const (
	PhaseAsking    Phase = iota + 1 // a claim is about to be sent
	PhaseGranted                    // the claim was granted; a caller is about to be told
	PhaseDelivered                  // a caller knows of it
	PhaseReleasing                  // a surrender is about to be sent
	PhaseLost                       // not held any more, against its holder's will
	PhaseOver                       // there is nothing to do or to tell any more; only the ID is set
)

// Record is one grant at one moment.
type Record struct {
	ID    GrantID
	Phase Phase
	At    Instant // when this was so

	Key   Key
	Token Token
	Owner string
	Note  string
	Fence Fence // 0 while asking

	Asked      Instant // when the request was sent that validity and holds count from
	AcquiredAt int64   // wall clock in ns, for people
	TTL        time.Duration
	MaxHold    time.Duration
	MinHold    time.Duration
	ValidUntil Instant       // no later than the store has confirmed
	Lease      time.Duration // that ValidUntil was reckoned from
	Least      time.Duration // the shortest lease that requests may set which are on their way; 0 for none
	StoreUntil Instant       // the store keeps the key no longer than this
	Renewals   int

	Renew    bool
	Bound    bool // ends with a connection
	Capped   bool // ValidUntil is set by MaxHold
	Tethered bool // a connection over which it was told is still open

	KeepUntil Instant // while releasing: the key stays taken until then
	Revocable bool    // while releasing: its holder asked for that, and may ask how it went

	Cause  Cause // once lost
	LostAt int64 // wall clock in ns
}

// Floor is what keeps fencing tokens rising: the greatest that was seen, and
// the greatest reading of the store's clock with the instant of that reading.
type Floor struct {
	Highest   Fence
	UnixMicro int64
	At        Instant
}

// Saved is what an earlier process has left behind.
type Saved struct {
	Records      []Record
	Floor        Floor
	StoreTimeout time.Duration // of that process

	// Doubtful says that no lease may be believed: the machine has been
	// started anew, so that instants mean nothing, or the records belong to
	// another store, or some of them are damaged. What was held counts as
	// lost then, and is given back.
	Doubtful bool
}

// notes are records that were made under the table's mutex and wait to be
// written outside it. They are written in the order in which they were made,
// by whoever needs one of them written first.
type notes struct {
	pending []Record      // guarded by the table's mutex
	made    atomic.Uint64 // so many were ever made; changed under the table's mutex

	writing sync.Mutex // taken before the table's
	spare   []Record
	written uint64 // so many were handed to the journal, or failed
	failed  uint64 // all up to this one count as failed …
	err     error  // … by this
}

// mostSpare bounds the memory that is kept from one write to the next.
const mostSpare = 1024

// noteLocked makes a record of the grant. Nothing is written yet.
func (l *Locker) noteLocked(g *grant, p Phase) {
	if l.cfg.Journal == nil {
		return
	}
	now := l.now()
	r := Record{
		ID: g.id, Phase: p, At: now, Key: g.key, Token: g.token, Owner: g.owner, Note: g.note, Fence: g.fence,
		Asked: g.asked, AcquiredAt: g.acquiredAt, TTL: g.ttl, MaxHold: g.maxHold, MinHold: g.minHold,
		ValidUntil: g.validUntil, Lease: g.lease, StoreUntil: g.storeUntil, Renewals: int(g.renewals),
		Renew: g.renew, Bound: g.bound, Capped: g.capped, Tethered: g.tethers > 0,
	}
	if e := g.extending; e != nil && e.until > g.validUntil {
		r.ValidUntil, r.Lease, r.Capped = e.until, e.lease, e.capped
	}
	if now < g.doubtUntil {
		r.Least = g.doubtTTL
	}
	l.jotLocked(r)
}

// noteChoreLocked makes a record of a grant that is about to be given back,
// unless one tells of its loss, which says as much.
func (l *Locker) noteChoreLocked(c *chore) {
	if l.cfg.Journal == nil || l.endings.remembersLoss(c.key, c.id) {
		return
	}
	l.jotLocked(Record{
		ID: c.id, Phase: PhaseReleasing, At: l.now(), Key: c.key, Token: c.token, Owner: c.owner, Note: c.note, Fence: c.fence,
		StoreUntil: c.giveUp, KeepUntil: c.keepUntil, Revocable: c.revocable,
	})
}

// noteLossLocked makes a record of a grant that was just lost.
func (l *Locker) noteLossLocked(g *grant, lost *LostError) {
	l.noteLocked(g, PhaseLost)
	if l.cfg.Journal != nil {
		r := &l.notes.pending[len(l.notes.pending)-1]
		r.Cause, r.LostAt = lost.Cause, lost.LostAt.UnixNano()
	}
}

// noteOverLocked makes a record that there is nothing left of a grant.
func (l *Locker) noteOverLocked(id GrantID) {
	if l.cfg.Journal != nil {
		l.jotLocked(Record{ID: id, Phase: PhaseOver})
	}
}

func (l *Locker) jotLocked(r Record) {
	l.notes.pending = append(l.notes.pending, r)
	l.notes.made.Add(1)
}

// writeNotes returns once all records that were made before are in the
// journal, or have failed. It does the writing for all who wait for it, so it
// must not be called under the table's mutex.
func (l *Locker) writeNotes() error {
	if l.cfg.Journal == nil {
		return nil
	}
	n := &l.notes
	upTo := n.made.Load()
	n.writing.Lock()
	defer n.writing.Unlock()
	if n.written < upTo {
		l.mu.Lock()
		batch := n.pending
		n.pending = n.spare
		made, floor := n.made.Load(), l.floor.saved()
		l.mu.Unlock()
		err := l.cfg.Journal.Write(batch, floor)
		n.written = made
		if err != nil {
			n.failed, n.err = made, err
		}
		clear(batch)
		n.spare = nil
		if cap(batch) <= mostSpare {
			n.spare = batch[:0]
		}
	}
	if upTo <= n.failed {
		return n.err
	}
	return nil
}

// errGrantNotRecorded: the journal does not take a record of a grant, so nobody
// may be told of it.
var errGrantNotRecorded = errors.New("the grant cannot be recorded: it is given back")

// writeGrant has a grant in the journal before anybody is told of it.
func (l *Locker) writeGrant(g *grant, answer Grant) error {
	if l.cfg.Journal == nil {
		return nil
	}
	l.mu.Lock()
	if now := l.now(); l.floor.plausible(answer.Fence, now) {
		g.granted(answer, now)
		l.noteLocked(g, PhaseGranted)
	}
	l.mu.Unlock()
	if err := l.writeNotes(); err != nil {
		return fmt.Errorf("%w: %v", errGrantNotRecorded, err)
	}
	return nil
}

// writeExtended has confirmed extensions in the journal before the table, and
// so before anybody is told of them. Else the next process could give a lease
// back before the end that was told.
func (l *Locker) writeExtended(batch extensions, verdicts []Verdict) {
	if l.cfg.Journal == nil {
		return
	}
	l.mu.Lock()
	for i, item := range batch.items {
		if g := item.grant; verdicts[i].Err == nil && item.ask.Keep > 0 && l.byID[g.id] == g {
			after := *g
			after.extended(batch.sent, item.ttl, item.capped)
			after.renewals++
			g.extending.until, g.extending.lease, g.extending.capped = after.validUntil, after.lease, after.capped
			l.noteLocked(&after, g.phase)
		}
	}
	l.mu.Unlock()
	_ = l.writeNotes() // not extended for want of space, it would be lost now rather than after a crash
}

// giveUpUnsent ends a grant whose claim could not be recorded.
func (l *Locker) giveUpUnsent(g *grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.askedLocked(g)
	l.noteOverLocked(g.id)
	return ErrNotRecorded
}

// Delivered says that an answer which told of the grant has arrived; exactly
// one of GiveBack and Cleared still follows. It matters to the journal alone:
// a process that takes it up extends only what was delivered.
func (l *Locker) Delivered(id GrantID) {
	if l.cfg.Journal == nil {
		return
	}
	l.mu.Lock()
	if g := l.byID[id]; g != nil {
		l.provenLocked(g)
	}
	l.mu.Unlock()
	_ = l.writeNotes()
}

// provenLocked takes in that somebody knows of the grant, and tells whether
// that was news.
func (l *Locker) provenLocked(g *grant) (news bool) {
	if l.cfg.Journal == nil || g.phase == PhaseDelivered {
		return false
	}
	g.phase = PhaseDelivered
	l.noteLocked(g, PhaseDelivered)
	if g.unproven {
		g.unproven = false
		l.renewSoonLocked(g)
	}
	return true
}

// askedForLocked is provenLocked for a caller who does not wait until that is
// written.
func (l *Locker) askedForLocked(g *grant) {
	if l.provenLocked(g) {
		l.poke()
	}
}

// renewSoonLocked has the watchdog renew a grant at once.
func (l *Locker) renewSoonLocked(g *grant) {
	b := g.beat()
	b.Confirmed, b.Failures = l.now().Add(-b.TTL), 0
	l.dog.Watch(b)
}

// forgottenLocked takes in that a loss is not remembered any more.
func (l *Locker) forgottenLocked(e *ending) {
	if e.id == 0 || l.cfg.Journal == nil {
		return
	}
	for _, c := range l.chores[e.key] {
		if c.id == e.id { // its token may still be in the store
			l.noteChoreLocked(c)
			return
		}
	}
	l.noteOverLocked(e.id)
}
