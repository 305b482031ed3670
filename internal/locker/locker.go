// Package locker is what a lock is: a lease, which is a value with a deadline
// on this machine's own clock. It owns the one table of what this process
// holds, asks for, gives back and has lost. "Held" is computed from the
// deadline whenever somebody asks, so a process that was stopped past it never
// says that it holds the lock.
//
// A [Backend] decides who owns a key and a [Watchdog] when to renew. An
// unknown outcome is never read as a no: an unknown acquire is undone, an
// unknown renewal is repeated until the deadline, an unknown release until
// nothing that was sent can be executed any more.
package locker

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Config is what a Locker needs to know. The zero value of a field means its
// default.
type Config struct {
	Holder       string        // this process's label in the store, for people
	StoreTimeout time.Duration // for one request to the store; default 300 ms
	MaxHeld      int           // locks held or asked for at a time; default 10,000
	MaxWaiters   int           // callers that wait at a time; default 2,000
	MaxTTL       time.Duration // a longer TTL in the store is nobody's; default 24 h
	Now          Clock         // default BootTime
	Observer     Observer      // default Silent
	Journal      Journal       // default none: nothing is written, and a restart knows nothing
	Log          *slog.Logger  // default discards
}

// Locker holds locks for this process. Run and the watchdog must be running
// for its promises to hold.
type Locker struct {
	cfg     Config
	backend Backend
	dog     Watchdog
	now     Clock
	observe Observer
	log     *slog.Logger
	wake    chan struct{} // to Run
	line    Queue         // the backend, if it keeps a line; else nil
	process string        // this process's name in lines
	listen  chan struct{} // to listenWhileWaiting: look again
	notes   notes         // on their way to the Journal

	// mu guards all below and the fields of every grant and chore. No request
	// to the store is made and nothing is logged while it is held.
	mu         sync.Mutex
	lastID     GrantID
	byID       map[GrantID]*grant
	held       map[Key]*grant
	asking     map[Key][]*grant
	askCount   int
	chores     map[Key][]*chore
	queue      choreQueue
	endings    endings
	floor      fenceFloor
	doubtedAt  Instant // of the last Doubt
	lines      map[Key]*line
	waiting    int
	calls      int64 // Turn.Call of the last call for a place
	departures []departure
	logLines   []logLine
	logging    bool          // somebody writes them
	refusing   error         // why no new lock is granted, or nil
	refused    chan struct{} // closed then
	closing    bool          // a shutdown has begun
	changed    chan struct{} // closed and replaced when a shutdown should look again
	news       chan struct{} // of Changes; nil if nobody has asked since the last
	released   int           // releases since the shutdown began
}

// New returns a Locker on the backend. It starts nothing.
func New(cfg Config, backend Backend, dog Watchdog) (*Locker, error) {
	if cfg.StoreTimeout == 0 {
		cfg.StoreTimeout = 300 * time.Millisecond
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = 10_000
	}
	if cfg.MaxWaiters == 0 {
		cfg.MaxWaiters = 2000
	}
	if cfg.MaxTTL == 0 {
		cfg.MaxTTL = 24 * time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = BootTime
	}
	if cfg.Observer == nil {
		cfg.Observer = Silent{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if backend == nil || dog == nil {
		return nil, errors.New("locker: a backend and a watchdog are needed")
	}
	queue, _ := backend.(Queue)
	l := &Locker{
		line: queue, process: cfg.Holder + "/" + rand.Text(), listen: make(chan struct{}, 1),
		lines: make(map[Key]*line), refused: make(chan struct{}),
		cfg: cfg, backend: backend, dog: dog, now: cfg.Now, observe: cfg.Observer, log: cfg.Log,
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		byID: make(map[GrantID]*grant), held: make(map[Key]*grant),
		asking: make(map[Key][]*grant), chores: make(map[Key][]*chore),
	}
	l.endings.forgotten = l.forgottenLocked
	return l, nil
}

// aliveLocked tells whether the grant is still held, and ends it if its
// validity is over. Every look at a held grant goes through here.
func (l *Locker) aliveLocked(g *grant, now Instant) bool {
	if l.held[g.key] != g {
		return false
	}
	if g.valid(now) {
		return true
	}
	cause := CauseExpired
	if g.capped {
		cause = CauseMaxHold
	}
	l.loseLocked(g, cause, now)
	return false
}

// heldLocked returns the grant of the key that is held now, or nil.
func (l *Locker) heldLocked(key Key, now Instant) *grant {
	if g := l.held[key]; g != nil && l.aliveLocked(g, now) {
		return g
	}
	return nil
}

// dropLocked takes a grant out of the table of held locks.
func (l *Locker) dropLocked(g *grant) {
	delete(l.held, g.key)
	delete(l.byID, g.id)
	l.dog.Forget(g.id)
	l.signalLocked()
	l.newsLocked()
}

// loseLocked ends a held grant for good: a lost lock is never taken up again.
func (l *Locker) loseLocked(g *grant, cause Cause, now Instant) {
	l.dropLocked(g)
	lost := l.rememberLossLocked(g, cause, now)
	l.observe.Lost(cause, now.Sub(g.asked))
	l.lineLocked(slog.LevelError, "lock lost", "key", g.key, "fence", g.fence, "cause", cause,
		"owner", g.owner, "held_for", now.Sub(g.asked).Round(time.Millisecond))
	// Our token may still be there, or be brought back by a late renewal. A
	// minimum hold lasts, as it does when the process dies.
	cleanUpAt, othersAt := g.cleanUpAt(cause, now), now
	if cause == CauseExpired || cause == CauseMaxHold {
		othersAt = g.validUntil // which may have passed: then nobody was kept out since
	}
	g.endLocked(EventLost, lost, othersAt, now)
	c := l.addChoreLocked(g, false, now)
	if cause == CauseTaken || cause == CauseGone {
		close(c.settled) // the store has said that it is not ours
	}
	l.scheduleLocked(c, cleanUpAt)
}

// cleanUpAt is when a grant that is lost may be given back. Its holder was told
// until when it is valid, and may use the rest of that to stop. That holds also
// if the store has lost it: a part of the store may still keep others out.
func (g *grant) cleanUpAt(cause Cause, now Instant) Instant {
	switch cause {
	case CauseExpired, CauseMaxHold, CauseTaken, CauseGone:
		return max(now, g.validUntil)
	}
	return now
}

// rememberLossLocked remembers for those who ask later that the grant was lost.
func (l *Locker) rememberLossLocked(g *grant, cause Cause, now Instant) *LostError {
	wall := time.Now()
	lost := &LostError{Fence: g.fence, Cause: cause, LostAt: wall}
	l.endings.add(&ending{id: g.id, key: g.key, fence: g.fence, owner: g.owner, note: g.note, at: now, wall: wall, lost: lost})
	l.noteLossLocked(g, lost)
	return lost
}

// learnLocked takes in what an answer told of the store's clock.
func (l *Locker) learnLocked(r Reading, now Instant) {
	l.floor.learnClock(r.UnixMicro, now)
	if r.Step != 0 {
		// The store counts TTLs on its wall clock, so what was extended before
		// the step may end earlier than we reckon.
		l.doubtLocked()
		l.observe.ClockStep(r.Step)
		l.lineLocked(slog.LevelWarn, "the store's clock has stepped: leases may end earlier or later than reckoned", "step", r.Step)
	}
}

// Doubt has every lock that is held renewed soon, or verified, as after a failed
// renewal; until then it is at risk. The store may have forgotten it, as a server
// may that has taken another's place.
func (l *Locker) Doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtedAt = l.now()
	l.doubtLocked()
}

func (l *Locker) doubtLocked() {
	for _, g := range l.held {
		g.failures++
		l.dog.Watch(g.beat())
		g.changedLocked()
	}
	l.newsLocked()
}

// signalLocked wakes a waiting shutdown.
func (l *Locker) signalLocked() {
	if l.closing {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// logLine is a log line that waits for the mutex to be free.
type logLine struct {
	level slog.Level
	text  string
	args  []any
}

func (l *Locker) lineLocked(level slog.Level, text string, args ...any) {
	l.logLines = append(l.logLines, logLine{level, text, args})
	l.poke()
}

// mustLog tells whether there are lines that nobody writes. The caller must have
// writeLog do so, and wait for nothing meanwhile: whoever reads the log may have
// stopped reading.
func (l *Locker) mustLog() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logging || len(l.logLines) == 0 {
		return false
	}
	l.logging = true
	return true
}

func (l *Locker) writeLog() {
	for {
		l.mu.Lock()
		lines := l.logLines
		l.logLines = nil
		l.logging = len(lines) > 0
		l.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		for _, line := range lines {
			l.log.Log(context.Background(), line.level, line.text, line.args...)
		}
	}
}
