package locker

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Query narrows what an Overview shows.
type Query struct {
	Match string // only rows with this in their key, owner or note, in any case; empty for all
	Limit int    // most rows of a section
}

// Overview is what List tells, counted in full and shown in part: it costs
// little to look at ten thousand locks now and then. It is for people only, so
// unlike List and Get it does not count as an answer that tells of a grant.
type Overview struct {
	// Tally counts all there is, whatever the Query; every state is in it.
	Tally         map[EntryState]int
	OldestHeldFor time.Duration

	Held      Section // held and at_risk: those at risk first, then the newest
	Waiting   Section // waiting and asking: by key and place
	Releasing Section // the oldest first
	Lost      Section // the newest first
}

// Section is one kind of rows.
type Section struct {
	Matching int // how many match the Query
	Entries  []Entry
}

// Overview tells what this sidecar holds, waits for, gives back and has lost.
func (l *Locker) Overview(q Query) Overview {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := moment{l.now(), time.Now()}
	q.Match = strings.ToLower(q.Match)
	o := Overview{Tally: map[EntryState]int{EntryHeld: 0, EntryAtRisk: 0, EntryAsking: 0, EntryWaiting: 0, EntryReleasing: 0, EntryLost: 0}}

	held := shortlist[heldRow]{query: q, order: func(a, b heldRow) int {
		if a.atRisk != b.atRisk {
			return cmp.Compare(b.atRisk, a.atRisk)
		}
		return cmp.Or(cmp.Compare(b.asked, a.asked), cmp.Compare(a.key, b.key))
	}}
	count := [2]int{}
	for _, g := range l.held {
		if !g.valid(at.now) && !l.aliveLocked(g, at.now) { // the latter looks the key up
			continue
		}
		row := heldRow{grant: g}
		if g.state(at.now) == StateAtRisk {
			row.atRisk = 1
		}
		count[row.atRisk]++
		o.OldestHeldFor = max(o.OldestHeldFor, at.now.Sub(g.asked))
		held.add(row, g.key, g.owner, g.note)
	}
	o.Tally[EntryHeld], o.Tally[EntryAtRisk] = count[0], count[1]
	o.Held = held.section(func(r heldRow) Entry { return at.held(r.grant) })

	waiting := shortlist[Entry]{query: q, order: func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.place(), b.place()), cmp.Compare(b.For, a.For))
	}}
	for _, asking := range l.asking {
		for _, g := range asking {
			e := at.asking(g, l.lines[g.key])
			o.Tally[e.State]++
			waiting.add(e, e.Key, e.Owner, e.Note)
		}
	}
	o.Waiting = waiting.section(itself)

	releasing := shortlist[*chore]{query: q, order: func(a, b *chore) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.key, b.key))
	}}
	for _, chores := range l.chores {
		for _, c := range chores {
			if c.isListed() {
				o.Tally[EntryReleasing]++
				releasing.add(c, c.key, c.owner, c.note)
			}
		}
	}
	o.Releasing = releasing.section(at.releasing)

	lost := shortlist[*ending]{query: q, order: func(a, b *ending) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.fence, a.fence))
	}}
	for _, e := range l.endings.all(at.now) {
		if e.lost != nil {
			o.Tally[EntryLost]++
			lost.add(e, e.key, e.owner, e.note)
		}
	}
	o.Lost = lost.section(at.lost)
	return o
}

// heldRow is a held grant and whether it is at risk: 1, else 0.
type heldRow struct {
	*grant
	atRisk int
}

func itself(e Entry) Entry { return e }

// place is where a row stands among those of its key; one that tries once
// stands behind those in line.
func (e Entry) place() int {
	if e.InLine == nil {
		return 1 << 30
	}
	return e.InLine.Place
}

// shortlist keeps the first few in an order of many rows. It holds at most
// twice as many as are wanted and sorts now and then, so that the table's
// mutex is not held while ten thousand are sorted.
type shortlist[T any] struct {
	query    Query
	order    func(a, b T) int
	matching int
	kept     []T
	sorted   int // the first so many are in order, and complete: the rest must be before the last of them
}

func (s *shortlist[T]) add(row T, key Key, owner, note string) {
	if m := s.query.Match; m != "" && !contains(string(key), m) && !contains(owner, m) && !contains(note, m) {
		return
	}
	s.matching++
	limit := s.query.Limit
	if limit <= 0 || s.sorted == limit && s.order(row, s.kept[limit-1]) > 0 {
		return
	}
	s.kept = append(s.kept, row)
	if len(s.kept) >= 2*limit+16 {
		s.cut()
	}
}

func (s *shortlist[T]) cut() {
	slices.SortFunc(s.kept, s.order)
	if limit := s.query.Limit; len(s.kept) > limit {
		clear(s.kept[limit:])
		s.kept = s.kept[:limit]
	}
	s.sorted = len(s.kept)
}

func (s *shortlist[T]) section(describe func(T) Entry) Section {
	s.cut()
	sec := Section{Matching: s.matching, Entries: make([]Entry, len(s.kept))}
	for i, row := range s.kept {
		sec.Entries[i] = describe(row)
	}
	return sec
}

// contains tells whether the text has the lower-case part in it, in any case.
// Texts without capitals, which most keys are, are not copied.
func contains(text, part string) bool { return strings.Contains(strings.ToLower(text), part) }
