package locker

import (
	"cmp"
	"slices"
	"time"
)

// line is those who wait here for one key. The store has one place for all of
// them, with the arrival number of the oldest; only that one asks.
type line struct {
	waiters []*waiter // by number; those without one yet are last
}

// waiter is one caller in line.
type waiter struct {
	g      *grant
	ends   Instant
	number int64 // 0 until the store has given it one
	rest   int64 // Turn.Rest of its last request

	recorded bool    // its token is in the journal, if there is one
	askAt    Instant // when it asks next without a hint
	asking   bool    // a request for it is on its way: its own, or a hand-over
	given    *handed // what a hand-over brought
	hinted   Instant // when a hint came that it has not acted on yet; 0 for none
	askBy    Instant // ask by then, whatever the request on its way brings; 0 for none
	held     *HeldError
	trouble  error // of the last request, if it brought neither a yes nor a no
	failures int
	nudge    chan struct{} // look again
}

type handed struct {
	answer Grant
	err    error
}

// look has the waiter look again what there is to do.
func (w *waiter) look() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// enterLocked puts a caller into line.
func (l *Locker) enterLocked(g *grant, wait time.Duration, now Instant) *waiter {
	w := &waiter{g: g, ends: now.Add(wait), askAt: now, recorded: l.cfg.Journal == nil, nudge: make(chan struct{}, 1)}
	g.waiter = w
	at := l.lines[g.key]
	if at == nil {
		at = new(line)
		l.lines[g.key] = at
	}
	at.waiters = append(at.waiters, w)
	l.waiting++
	l.newsLocked()
	if l.waiting == 1 {
		l.pokeListener()
	}
	return w
}

// numberLocked takes in the number that the store gave a waiter.
func (l *Locker) numberLocked(w *waiter, number int64) {
	if w.number == number {
		return
	}
	w.number = number
	slices.SortStableFunc(l.lines[w.g.key].waiters, func(a, b *waiter) int {
		if (a.number == 0) != (b.number == 0) {
			return cmp.Compare(b.number, a.number) // without a number: last
		}
		return cmp.Compare(a.number, b.number)
	})
}

// leaveLocked takes a caller out of line. The next one asks soon by itself: it
// does not know how many stand before it elsewhere.
func (l *Locker) leaveLocked(w *waiter, now Instant) (wasOldest bool) {
	key := w.g.key
	at := l.lines[key]
	wasOldest = at.oldest() == w
	at.waiters = slices.DeleteFunc(at.waiters, func(other *waiter) bool { return other == w })
	w.g.waiter = nil
	l.waiting--
	if len(at.waiters) == 0 {
		delete(l.lines, key)
	} else if next := at.oldest(); wasOldest {
		next.askAt = now.Add(AskEvery) // the store expects it by then
		next.look()
	}
	if l.waiting == 0 {
		l.pokeListener()
	}
	return wasOldest
}

// oldest is the waiter whose turn it is first; nil if nobody waits.
func (at *line) oldest() *waiter {
	if at == nil || len(at.waiters) == 0 {
		return nil
	}
	return at.waiters[0]
}

// turnLocked says for the store who asks and who keeps the place after it.
func (l *Locker) turnLocked(w *waiter, now Instant) Turn {
	l.calls++
	t := Turn{Process: l.process, Number: w.number, Call: l.calls}
	for _, other := range l.lines[w.g.key].waiters {
		t.WaitLeft = max(t.WaitLeft, other.ends.Sub(now))
		if t.Rest == 0 && other != w {
			t.Rest = other.number
		}
	}
	// The last answer may come a store timeout after the end of the wait.
	t.WaitLeft += l.cfg.StoreTimeout
	w.rest = t.Rest
	return t
}

// departure is a place that is to be given up in the store.
type departure struct {
	key  Key
	turn Turn
}

// departLocked has Run tell the store that a caller has left.
func (l *Locker) departLocked(key Key, number, rest int64) {
	l.calls++
	l.departures = append(l.departures, departure{key, Turn{Process: l.process, Number: number, Rest: rest, Call: l.calls}})
	l.poke()
}

// hear takes in what the store has to say to those who wait here.
func (l *Locker) hear(h Hint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if h.Kind == HintListening {
		// A wake-up may have been missed before: ask once more.
		for _, at := range l.lines {
			at.oldest().askNoLaterThan(now)
		}
		return
	}
	w := l.lines[h.Key].oldest()
	if w == nil {
		if h.Kind == HintWake {
			l.departLocked(h.Key, 0, 0) // nobody waits here: pass it on
		}
		return
	}
	at := now
	if h.Kind == HintNear {
		at = now.Add(AskEvery)
	} else {
		l.observe.WokenUp()
		w.hinted = now
	}
	w.askNoLaterThan(at)
}

// askNoLaterThan has the waiter follow a hint. The answer to a request that is
// on its way may be older than the hint, and must not put it off.
func (w *waiter) askNoLaterThan(at Instant) {
	if w.asking && (w.askBy == 0 || at < w.askBy) {
		w.askBy = at
	}
	if at < w.askAt {
		w.askAt = at
		w.look()
	}
}
