package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// line is who waits for one key. The zero line is empty.
type line struct {
	places []place // in order
	last   int64   // the greatest number that anybody has had

	// silent counts the places dropped since the last grant that had been woken
	// and said nothing: each doubles how many are woken next, so that ten dead
	// heads do not cost ten times the wait for one.
	silent int

	forgetAt locker.Instant
}

// place is where a process stands in line.
type place struct {
	process string
	number  int64 // of the oldest of its callers
	call    int64 // the latest that spoke for it

	askBy   locker.Instant // when it promised to ask again
	waitEnd locker.Instant // when its wait is over
	woken   locker.Instant // when it was woken; 0 if it has asked since
	near    bool           // it knows that it is among the first
}

// rememberLine is how long numbers go on from the last after every place is
// gone or dead: far longer than it takes for a place that was dropped by
// mistake to be asked for again.
const rememberLine = 10 * time.Second

// maxWidth bounds how many are woken at once, as a power of two.
const maxWidth = 10

// dead tells whether the place has broken its promise, waits no more, or was
// woken and says nothing.
func (p place) dead(now locker.Instant) bool {
	return now > p.askBy.Add(locker.DeadAfter) || now > p.waitEnd ||
		p.woken != 0 && now > p.woken.Add(locker.DeadAfter)
}

// compare orders places by number. Two processes can have one number only if
// the store has forgotten the line meanwhile.
func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.number, other.number), cmp.Compare(p.process, other.process))
}

// dropDead drops every place at the front that is dead.
func (l *line) dropDead(now locker.Instant) {
	n := l.deadHeads(now)
	for _, p := range l.places[:n] {
		if p.woken != 0 {
			l.silent++
		}
	}
	l.places = slices.Delete(l.places, 0, n)
}

func (l *line) deadHeads(now locker.Instant) int {
	for i, p := range l.places {
		if !p.dead(now) {
			return i
		}
	}
	return len(l.places)
}

// index returns where the process stands; -1 if it does not.
func (l *line) index(process string) int {
	return slices.IndexFunc(l.places, func(p place) bool { return p.process == process })
}

// take removes the process's place and returns it; one without a number if
// it had none.
func (l *line) take(process string) place {
	i := l.index(process)
	if i < 0 {
		return place{process: process}
	}
	p := l.places[i]
	l.places = slices.Delete(l.places, i, i+1)
	return p
}

// before tells whether somebody is before the place, which is not in line.
func (l *line) before(p place) bool {
	return len(l.places) > 0 && l.places[0].compare(p) < 0
}

// put inserts a place whose process has none and returns how many are before
// it.
func (l *line) put(p place) int {
	i, _ := slices.BinarySearchFunc(l.places, p, place.compare)
	l.places = slices.Insert(l.places, i, p)
	return i
}

// number returns the arrival number of the caller who makes the turn, a new one
// if it has none.
func (l *line) number(t locker.Turn) int64 {
	l.last = max(l.last, t.Number, t.Rest)
	if t.Number != 0 {
		return t.Number
	}
	l.last++
	return l.last
}

// asked changes a place by the call of one of its callers, whose number it
// gives. See the top of queue.go for why a place may go back.
func (p *place) asked(t locker.Turn, number int64, now locker.Instant) {
	first := number
	if t.Rest != 0 {
		first = min(first, t.Rest)
	}
	switch {
	case p.number == 0:
		p.number = first
	case t.Number == 0:
		p.number = min(p.number, first)
	case t.Call >= p.call:
		p.number = first
	}
	p.call = max(p.call, t.Call)
	p.waitEnd = max(p.waitEnd, now.Add(t.WaitLeft))
}

// promise has the process at i ask again after d.
func (l *line) promise(i int, now locker.Instant, d time.Duration) {
	p := &l.places[i]
	p.askBy, p.woken, p.near = now.Add(d), 0, i < 2
	l.forgetAt = max(l.forgetAt, min(p.askBy.Add(locker.DeadAfter), p.waitEnd).Add(rememberLine))
}

// lines holds the lines of all keys. Like table it has no timers.
type lines struct {
	lines map[locker.Key]*line
	kept  int // since the last sweep
}

// get returns the key's line as it is at now. A new line is not in the table
// until it is kept.
func (t *lines) get(key locker.Key, now locker.Instant) *line {
	l := t.lines[key]
	if l == nil || now >= l.forgetAt {
		return new(line)
	}
	return l
}

// keep puts a line into the table, and sweeps when it is time.
func (t *lines) keep(key locker.Key, l *line, now locker.Instant) {
	if t.lines == nil {
		t.lines = make(map[locker.Key]*line)
	}
	if t.lines[key] == l {
		return
	}
	t.lines[key] = l
	if t.kept++; t.kept < sweepLeast+len(t.lines)/2 {
		return
	}
	left := make(map[locker.Key]*line)
	for key, l := range t.lines {
		if now < l.forgetAt {
			left[key] = l
		}
	}
	t.lines, t.kept = left, 0
}
