package locker

import (
	"context"
	"io"
	"slices"
	"time"
)

// EventKind says what an Event tells.
type EventKind string

const (
	EventHeld     EventKind = "held"     // always the first; again when at_risk is over
	EventRenewed  EventKind = "renewed"  // valid until another instant than was told before
	EventAtRisk   EventKind = "at_risk"  // still valid, but a renewal is overdue
	EventDraining EventKind = "draining" // this sidecar is about to go; the lock is still held
	EventLost     EventKind = "lost"     // the last: not held any more, against the holder's will
	EventReleased EventKind = "released" // the last: given back
)

// Event is one thing that those who follow a grant are told. Its Status is that
// of the moment in which the Event was read. In the last Event, ValidFor is how
// long nobody else can have the lock, 0 if another may have it already, and
// State is empty.
type Event struct {
	Kind   EventKind
	Status Status
	Lost   *LostError // for EventLost
}

// maxNap bounds how late a watch notices that the machine was suspended: Go's
// timers stand still meanwhile.
const maxNap = 100 * time.Millisecond

// Watch follows one grant to its end. What it tells is found out when it is
// read, so one that is read slowly leaves out what is over by then, costs no
// memory and holds up nobody. It needs no watchdog: a grant whose time is over
// is lost at the latest when its Watch is read. One goroutine at a time may
// use it.
type Watch struct {
	l       *Locker
	g       *grant
	changed func()
	nudge   chan struct{} // of Next; nil for one who is read by Look

	// Guarded by the Locker's mutex.
	state    HeldState // last told; empty before the first Event
	until    Instant   // ValidUntil last told
	drains   bool      // told
	end      *Event    // the last one, once the grant is over
	ended    bool      // it was told
	closed   bool
	farewell *farewell // of the last Event, until it was passed on
}

// audience is who lives by a grant, or follows it.
type audience struct {
	bound int  // connections that it ends with
	told  bool // over one of them

	// deafUntil is how long one that was left deaf may rely on what it was told.
	deafUntil Instant
	watches   []*Watch
}

// farewell waits until all who follow a grant have passed on its last Event.
type farewell struct {
	left  int
	heard chan struct{} // closed then
}

// Watch follows the grant that the handle names. The errors are those of Get.
// It must be closed.
func (l *Locker) Watch(key Key, h Handle) (*Watch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.findLocked(key, h, l.now())
	if err != nil {
		return nil, err
	}
	g.published = true
	return l.followLocked(g, nil), nil
}

// Follow is Watch for one who reads it by Look, when changed is called or the
// time is over that Look has told. changed is called under the table's mutex:
// it must not block and must not call the Locker; nil is for one who reads it by
// Next. The error is ErrNotHeld if the grant is over; Get tells how it ended.
func (l *Locker) Follow(id GrantID, changed func()) (*Watch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.byID[id]
	if g == nil || !l.aliveLocked(g, l.now()) {
		return nil, ErrNotHeld
	}
	return l.followLocked(g, changed), nil
}

func (l *Locker) followLocked(g *grant, changed func()) *Watch {
	w := &Watch{l: l, g: g, changed: changed}
	if changed == nil {
		w.nudge = make(chan struct{}, 1)
		w.changed = w.look
	}
	if g.audience == nil {
		g.audience = new(audience)
	}
	g.audience.watches = append(g.audience.watches, w)
	return w
}

// look has Next look again.
func (w *Watch) look() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// Next waits for the next Event. After the last one it returns io.EOF, and the
// error of ctx once that is over. Calling it says that the Event before has
// been passed on.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	for {
		e, news, again := w.Look()
		if news {
			return e, nil
		}
		if again == 0 {
			return Event{}, io.EOF
		}
		timer := time.NewTimer(min(again.Sub(w.l.now()), maxNap))
		select {
		case <-w.nudge:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Event{}, ctx.Err()
		}
		timer.Stop()
	}
}

// Look returns the next Event, if there is one now. If not, again is when to
// look again unless changed is called before; 0 after the last Event. Calling
// it says that the Event before has been passed on.
func (w *Watch) Look() (e Event, news bool, again Instant) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	now := w.l.now()
	if w.end == nil && !w.closed {
		w.l.aliveLocked(w.g, now) // which ends it if its time is over
	}
	if w.end != nil && !w.ended && !w.closed {
		w.ended = true
		last := *w.end
		last.Status.ValidFor = max(0, last.Status.ValidUntil.Sub(now))
		return last, true, 0
	}
	if w.end != nil || w.closed {
		w.passedOnLocked()
		return Event{}, false, 0
	}
	st := w.g.status(now)
	if kind := w.newsLocked(st); kind != "" {
		return Event{Kind: kind, Status: st}, true, 0
	}
	return Event{}, false, w.g.changesAt(st.State)
}

// newsLocked returns what is to be told of a grant that is held, and takes it
// for told; empty if that is nothing.
func (w *Watch) newsLocked(st Status) EventKind {
	kind := EventRenewed
	switch {
	case w.state == "":
		w.state, w.until = StateHeld, st.ValidUntil // that it is at risk comes next
		return EventHeld
	case st.State != w.state && st.State == StateHeld:
		kind = EventHeld
	case st.State != w.state:
		kind = EventAtRisk
	case w.l.refusing != nil && !w.drains:
		w.drains = true
		kind = EventDraining
	case st.ValidUntil == w.until:
		return ""
	}
	w.state, w.until = st.State, st.ValidUntil
	return kind
}

// Close ends the watch, and says that what was read has been passed on. The
// grant goes on.
func (w *Watch) Close() {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.closed = true
	w.passedOnLocked()
	if a := w.g.audience; a != nil {
		a.watches = slices.DeleteFunc(a.watches, func(other *Watch) bool { return other == w })
		w.g.disbandLocked()
	}
}

func (w *Watch) passedOnLocked() {
	if w.farewell == nil {
		return
	}
	if w.farewell.left--; w.farewell.left == 0 {
		close(w.farewell.heard)
	}
	w.farewell = nil
}

// changedLocked tells those who follow the grant to look.
func (g *grant) changedLocked() {
	if g.audience == nil {
		return
	}
	for _, w := range g.audience.watches {
		w.changed()
	}
}

// disbandLocked drops an audience that nobody is left of.
func (g *grant) disbandLocked() {
	if a := g.audience; a != nil && a.bound == 0 && len(a.watches) == 0 && a.deafUntil == 0 {
		g.audience = nil
	}
}

// watchedLocked tells whether anybody follows the grant.
func (g *grant) watchedLocked() bool { return g.audience != nil && len(g.audience.watches) > 0 }

// endLocked tells those who follow a grant that it is over, and that nobody
// else can have the lock before an instant. heard is closed once all of them
// have passed it on; nil if nobody follows it.
func (g *grant) endLocked(kind EventKind, lost *LostError, othersAt, now Instant) (heard <-chan struct{}) {
	if !g.watchedLocked() {
		return nil
	}
	st := g.status(now)
	st.State, st.ValidUntil = "", othersAt
	bye := &farewell{left: len(g.audience.watches), heard: make(chan struct{})}
	for _, w := range g.audience.watches {
		w.end, w.farewell = &Event{Kind: kind, Status: st, Lost: lost}, bye
		w.changed()
	}
	g.audience.watches = nil
	return bye.heard
}

// hearWait bounds how long a release is put off until those who follow the
// grant have been told.
const hearWait = 100 * time.Millisecond

// awaitHeard waits until those who followed the grants have been told that
// they are over, but not for long.
func awaitHeard(batch []*chore) {
	var over <-chan time.Time
	for _, c := range batch {
		if c.heard == nil {
			continue
		}
		if over == nil {
			timer := time.NewTimer(hearWait)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-c.heard:
		case <-over:
			return
		}
	}
}
