package locker

import (
	"slices"
	"time"
)

// moment is when a listing is made, on both clocks.
type moment struct {
	now  Instant
	wall time.Time
}

func (m moment) entry(state EntryState, key Key, owner, note string, since Instant) Entry {
	ago := max(0, m.now.Sub(since))
	return Entry{State: state, Key: key, Owner: owner, Note: note, At: m.wall.Add(-ago), For: ago}
}

// held is the row of a grant that is alive.
func (m moment) held(g *grant) Entry {
	st := g.status(m.now)
	return Entry{State: EntryState(st.State), Key: st.Key, Owner: st.Owner, Note: st.Note, At: st.AcquiredAt, For: st.HeldFor, Status: &st}
}

// asking is the row of a grant that was asked for; at is the key's line.
func (m moment) asking(g *grant, at *line) Entry {
	if g.waiter == nil {
		return m.entry(EntryAsking, g.key, g.owner, g.note, g.entered)
	}
	e := m.entry(EntryWaiting, g.key, g.owner, g.note, g.entered)
	e.InLine = &InLine{Place: slices.Index(at.waiters, g.waiter) + 1, Left: max(0, g.waiter.ends.Sub(m.now))}
	// The oldest asks for all, so its answer is the newest.
	if held := at.oldest().held; held != nil {
		occupancy := held.Occupancy
		e.InLine.Occupancy = &occupancy
		if held.Standing != nil {
			ahead := held.Standing.Ahead
			e.InLine.Ahead = &ahead
		}
	}
	return e
}

func (m moment) releasing(c *chore) Entry {
	return m.entry(EntryReleasing, c.key, c.owner, c.note, c.since)
}

func (m moment) lost(e *ending) Entry {
	return Entry{State: EntryLost, Key: e.key, Owner: e.owner, Note: e.note, At: e.wall, For: m.now.Sub(e.at), Lost: e.lost}
}

// isListed tells whether people are shown the release: a caller gave the lock
// back, and it is not known to have happened.
func (c *chore) isListed() bool { return c.revocable && !c.isSettled() }
