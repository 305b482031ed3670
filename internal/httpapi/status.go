package httpapi

import (
	"net/http"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// How many rows of each kind are told, unless the caller asks for another
// number: what somebody can look through.
const (
	rowsUsual = 200
	rowsMost  = 1000
)

// status answers GET and HEAD /: with the page for browsers, with a feed for
// those who ask for events, else with one snapshot.
func (a *api) status(w http.ResponseWriter, r *http.Request) error {
	in := newInput(r, paramSearch, paramLimit)
	query := locker.Query{Match: in.text(paramSearch, searchMaxLen), Limit: in.count(paramLimit, rowsUsual, rowsMost)}
	if in.err != nil {
		return in.err
	}
	w.Header().Add("Vary", "Accept")
	switch {
	case wantsPage(r):
		return a.page.serve(w)
	case prefers(r, typeEvents, typeJSON):
		return a.feed(w, r, query)
	}
	return respondJSON(w, a.snapshot(a.Health(r.Context()), query))
}

// snapshot is what the status page shows.
type snapshot struct {
	Version   string                    `json:"version"`
	Holder    string                    `json:"holder"`
	Backend   string                    `json:"backend"`
	Scope     string                    `json:"scope"`
	Store     string                    `json:"store"` // "ok", or what is wrong
	Draining  bool                      `json:"draining"`
	Warnings  []string                  `json:"warnings"`
	Locks     map[locker.EntryState]int `json:"locks"` // how many there are in each state
	OldestMS  int64                     `json:"oldest_held_for_ms"`
	Held      section[holding]          `json:"held"`
	Waiting   section[waitingRow]       `json:"waiting"`
	Releasing section[row]              `json:"releasing"`
	Lost      section[lostRow]          `json:"lost"`
}

// section is one kind of rows: as many as were asked for of all that match.
type section[T any] struct {
	Matching int `json:"matching"`
	Rows     []T `json:"rows"`
}

// row is what is told of everything but a held lock.
type row struct {
	Key   locker.Key        `json:"key"`
	State locker.EntryState `json:"state"`
	Owner string            `json:"owner"`
	Note  string            `json:"note"`
	Since string            `json:"since"`
	ForMS int64             `json:"for_ms"` // how long it has been in the state
}

type waitingRow struct {
	row
	*inLine
}

// inLine is where somebody who waits stands. What is null is not known.
type inLine struct {
	Place     int        `json:"place"`      // among those who wait here
	PodsAhead *int       `json:"pods_ahead"` // in line before this pod
	WaitLeft  int64      `json:"wait_left_ms"`
	Occupancy *occupancy `json:"occupancy"` // who has the key; as of when the store was asked last
}

type lostRow struct {
	row
	FencingToken locker.Fence `json:"fencing_token"`
	Cause        locker.Cause `json:"cause"`
}

func (a *api) snapshot(health Health, q locker.Query) snapshot {
	o := a.Locks.Overview(q)
	s := snapshot{
		Version: a.Version, Holder: a.Holder, Backend: a.Backend, Scope: a.Scope,
		Store: "ok", Draining: health.Draining, Warnings: append([]string{}, health.Warnings...),
		Locks: o.Tally, OldestMS: o.OldestHeldFor.Milliseconds(),
		Held:      describeSection(o.Held, func(e locker.Entry) holding { return describeHolding(*e.Status) }),
		Waiting:   describeSection(o.Waiting, func(e locker.Entry) waitingRow { return waitingRow{describeRow(e), describeInLine(e.InLine)} }),
		Releasing: describeSection(o.Releasing, describeRow),
		Lost: describeSection(o.Lost, func(e locker.Entry) lostRow {
			return lostRow{describeRow(e), e.Lost.Fence, e.Lost.Cause}
		}),
	}
	if health.Problem != "" {
		s.Store = health.Problem
	}
	return s
}

func describeSection[T any](s locker.Section, describe func(locker.Entry) T) section[T] {
	described := section[T]{Matching: s.Matching, Rows: make([]T, len(s.Entries))}
	for i, e := range s.Entries {
		described.Rows[i] = describe(e)
	}
	return described
}

func describeRow(e locker.Entry) row {
	return row{Key: e.Key, State: e.State, Owner: e.Owner, Note: e.Note, Since: timestamp(e.At), ForMS: e.For.Milliseconds()}
}

func describeInLine(p *locker.InLine) *inLine {
	if p == nil {
		return nil
	}
	described := &inLine{Place: p.Place, PodsAhead: p.Ahead, WaitLeft: p.Left.Milliseconds()}
	if p.Occupancy != nil {
		described.Occupancy = describeOccupancy(*p.Occupancy)
		described.Occupancy.ExpiresInMS = nil // the holder will have renewed it since
	}
	return described
}
