package locker

import (
	"errors"
	"slices"
	"time"
)

// How long, and how many, losses and late confirmations are remembered.
const (
	endingMemory = 10 * time.Minute
	endingsMax   = 10_000
)

func isLoss(err error) bool { return errors.Is(err, ErrTaken) || errors.Is(err, ErrGone) }

func causeOf(err error) Cause {
	if errors.Is(err, ErrTaken) {
		return CauseTaken
	}
	return CauseGone
}

// ending is how one grant ended, for those who ask later: lost, or released
// after the answer had said that this was not confirmed yet.
type ending struct {
	id         GrantID // of a loss that is in the journal
	key        Key
	fence      Fence
	owner      string
	note       string
	lost       *LostError // nil for a release
	at         Instant
	wall       time.Time
	superseded bool // a later grant of the key was made here
	dropped    bool
}

func (e *ending) matches(h Handle) bool {
	if h == (Handle{}) {
		return !e.superseded
	}
	return (h.Fence == 0 || h.Fence == e.fence) && (h.Owner == "" || h.Owner == e.owner)
}

// endings remembers them per key, and in their order for forgetting.
type endings struct {
	byKey map[Key][]*ending
	order []*ending
	count int

	forgotten func(*ending) // is told of each that is dropped
}

func (m *endings) add(e *ending) {
	if m.byKey == nil {
		m.byKey = make(map[Key][]*ending)
	}
	m.forget(e.at)
	m.byKey[e.key] = append(m.byKey[e.key], e)
	m.order = append(m.order, e)
	m.count++
	for m.count > endingsMax {
		m.trim()
		m.drop(m.order[0])
	}
	if len(m.order) > 2*endingsMax {
		m.order = slices.DeleteFunc(m.order, func(e *ending) bool { return e.dropped })
	}
}

// forget drops what is older than the memory.
func (m *endings) forget(now Instant) {
	for len(m.order) > 0 && (m.order[0].dropped || now.Sub(m.order[0].at) >= endingMemory) {
		m.drop(m.order[0])
		m.order = m.order[1:]
	}
}

// trim takes dropped entries off the front.
func (m *endings) trim() {
	for len(m.order) > 0 && m.order[0].dropped {
		m.order = m.order[1:]
	}
}

func (m *endings) drop(e *ending) {
	if e.dropped {
		return
	}
	e.dropped = true
	m.count--
	rest := slices.DeleteFunc(m.byKey[e.key], func(other *ending) bool { return other == e })
	if len(rest) == 0 {
		delete(m.byKey, e.key)
	} else {
		m.byKey[e.key] = rest
	}
	m.forgotten(e)
}

// find returns the newest ending of the key that the handle names.
func (m *endings) find(key Key, h Handle, now Instant) *ending {
	m.forget(now)
	for _, e := range slices.Backward(m.byKey[key]) {
		if e.matches(h) {
			return e
		}
	}
	return nil
}

// remembersLoss tells whether the loss of a grant is remembered.
func (m *endings) remembersLoss(key Key, id GrantID) bool {
	return slices.ContainsFunc(m.byKey[key], func(e *ending) bool { return e.id == id })
}

// granted takes in a new grant of the key: the owner's earlier endings are
// dropped, the others answer only to their own handle from now on.
func (m *endings) granted(key Key, owner string) {
	for _, e := range slices.Clone(m.byKey[key]) {
		e.superseded = true
		if owner != "" && e.owner == owner {
			m.drop(e)
		}
	}
}

// all yields the endings, oldest first.
func (m *endings) all(now Instant) []*ending {
	m.forget(now)
	return slices.DeleteFunc(slices.Clone(m.order), func(e *ending) bool { return e.dropped })
}
