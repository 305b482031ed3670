package locker

import (
	"cmp"
	"slices"
	"time"
)

// Restored counts what became of the grants of an earlier process.
type Restored struct {
	TakenUp   int // held; extended at once, and at risk until then
	Doubted   int // held, but perhaps nobody was told: they end with their lease unless somebody asks for them
	Releasing int // being given back
	Lost      int // not held any more, and remembered for those who ask
}

// Restore takes up what an earlier process has left behind. It must come
// before everything else, and asks nothing of the store: Run and the watchdog
// do that once they are started. The error is the journal's; the table is right
// in spite of it.
//
// A lease that was delivered goes on. One that was granted may have been told
// or not: it stays valid for as long as it may have been told to be, but is not
// extended until somebody asks for it, who must have been told. What nobody can
// have been told of is given back, and so is what ends with a connection: that
// has ended with the process.
func (l *Locker) Restore(s Saved) (Restored, error) {
	l.mu.Lock()
	now := l.now()
	if s.Doubtful {
		s.Floor.At = now // its own instant may be another boot's
	}
	l.floor.restore(s.Floor, now)
	// Of two grants of a key the later one counts.
	records := slices.SortedStableFunc(slices.Values(s.Records), func(a, b Record) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, r := range records {
		l.lastID = max(l.lastID, r.ID)
		l.restoreLocked(r, s, now)
	}
	counts := l.restoredLocked()
	l.mu.Unlock()
	return counts, l.writeNotes()
}

func (l *Locker) restoreLocked(r Record, s Saved, now Instant) {
	doubtful := s.Doubtful || r.At > now || r.Asked > now
	g := l.grantOf(r, max(s.StoreTimeout, l.cfg.StoreTimeout), doubtful, now)
	switch {
	case r.Phase == PhaseAsking:
		l.takeBackLocked(g, 0, false, now)
	case r.Phase == PhaseReleasing:
		left := min(max(0, r.KeepUntil.Sub(r.At)), l.cfg.MaxTTL)
		if !doubtful {
			left = r.KeepUntil.Sub(now)
		}
		l.takeBackLocked(g, left, r.Revocable, now)
	case r.Phase == PhaseLost:
		l.rememberLocked(g, r, now)
	case r.Bound && r.Renew: // else it was left to its end before
		l.holdLocked(g, now)
		l.loseLocked(g, CauseShutdown, now)
	case doubtful:
		l.holdLocked(g, now)
		l.loseLocked(g, CauseExpired, now)
	default:
		if l.floor.plausible(g.fence, now) {
			l.floor.learn(g.fence)
		}
		l.takeUpLocked(g, now)
	}
}

// grantOf makes a grant of a record. late is how long requests of the process
// that wrote it may yet be executed: none was sent after now, and none waits
// for longer.
func (l *Locker) grantOf(r Record, late time.Duration, doubtful bool, now Instant) *grant {
	g := &grant{
		id: r.ID, key: r.Key, owner: r.Owner, token: r.Token, note: r.Note, fence: r.Fence,
		entered: now, asked: r.Asked, acquiredAt: r.AcquiredAt,
		ttl: r.TTL, maxHold: r.MaxHold, minHold: r.MinHold, renew: r.Renew, bound: r.Bound, capped: r.Capped,
		validUntil: r.ValidUntil, lease: r.Lease, confirmed: r.Asked, renewals: int32(r.Renewals),
		phase: r.Phase, unproven: r.Phase == PhaseGranted, published: true,
		failures: 1, // at risk until the store has confirmed it
	}
	if doubtful {
		// Its instants say nothing. Our own wall clock tells at least roughly
		// how long it was held.
		held := time.Duration(time.Now().UnixNano() - r.AcquiredAt)
		g.asked = now.Add(-min(max(0, held), time.Duration(now)))
		g.validUntil, r.StoreUntil = now, 0
	}
	if r.Tethered {
		g.tethers = 1 // its connection was open to the last, so its holder may be at work
	}
	g.unanswered(now.Add(late))
	// The store may have been told of a longer lease than the record knows …
	g.storeUntil = r.StoreUntil
	g.sending(now.Add(late), max(g.ttl, g.minHoldLeft(now)))
	// … and of a shorter one, which would cut the one that is asked for next.
	g.mayRepeat(now.Add(late), g.ttl)
	for _, ttl := range []time.Duration{r.Lease, r.Least} {
		if ttl > 0 {
			g.mayRepeat(now.Add(late), ttl)
		}
	}
	if end, ok := g.holdEnd(); ok {
		g.mayRepeat(now.Add(late), max(end.Sub(now), time.Millisecond))
	}
	return g
}

// takeUpLocked puts a grant into the table as held, unless it is over. Its TTL
// may be of a time when longer ones were allowed.
func (l *Locker) takeUpLocked(g *grant, now Instant) {
	g.ttl = min(g.ttl, l.cfg.MaxTTL)
	l.holdLocked(g, now)
	if l.aliveLocked(g, now) {
		l.noteLocked(g, g.phase)
		l.renewSoonLocked(g)
	}
}

func (l *Locker) holdLocked(g *grant, now Instant) {
	if older := l.held[g.key]; older != nil {
		l.loseLocked(older, CauseGone, now) // or the store would not have granted this one
	}
	l.held[g.key], l.byID[g.id] = g, g
}

// takeBackLocked has a grant given back; the key stays taken for the rest of
// its minimum hold.
func (l *Locker) takeBackLocked(g *grant, keep time.Duration, revocable bool, now Instant) {
	c := l.addChoreLocked(g, true, now)
	if keep > 0 {
		c.keepUntil = now.Add(keep)
	}
	c.revocable, c.told = revocable, revocable
	c.doubtful = true // the earlier process may have done it
	l.noteChoreLocked(c)
	l.scheduleLocked(c, now)
}

// rememberLocked takes in a loss. Its token may still be in the store.
func (l *Locker) rememberLocked(g *grant, r Record, now Instant) {
	c := l.addChoreLocked(g, false, now)
	at := g.cleanUpAt(r.Cause, now)
	if r.Cause == CauseShutdown {
		at = max(now, g.validUntil) // that shutdown may have left it to its end
	}
	if at > now {
		close(c.settled) // nobody waits for that: the store says whether the key is free
	}
	l.scheduleLocked(c, at)
	wall := time.Unix(0, r.LostAt)
	if time.Since(wall) >= endingMemory {
		l.noteChoreLocked(c)
		return
	}
	lost := &LostError{Fence: r.Fence, Cause: r.Cause, LostAt: wall}
	l.endings.add(&ending{id: g.id, key: g.key, fence: g.fence, owner: g.owner, note: g.note, at: now, wall: wall, lost: lost})
	l.noteLossLocked(g, lost)
}

func (l *Locker) restoredLocked() (c Restored) {
	for _, g := range l.held {
		if g.unproven {
			c.Doubted++
		} else {
			c.TakenUp++
		}
	}
	c.Lost = l.endings.count
	c.Releasing = len(l.queue) - c.Lost // each loss has its clean-up
	return c
}
