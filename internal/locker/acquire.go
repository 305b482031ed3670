package locker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Acquire takes the lock. If it is held, it waits in line for at most r.Wait.
// It blocks for at most r.Wait and the store timeout, and repeats requests
// whose outcome is unknown. A repeated call by the owner
// that holds the lock returns that grant; repeated is true then.
//
// A success must be followed by exactly one of GiveBack, if the caller could
// not be told, and Cleared, once the connection over which it was told has
// closed; if the request was Bound, by exactly one Unbind. If ctx is over by the time of the grant, the grant is given back and
// the error is ErrCallerGone.
//
// The errors: *HeldError, ErrKeyConflict, *MismatchError, ErrOwnerBusy,
// ErrTooManyLocks, ErrTooManyWaiters, ErrShuttingDown, ErrDraining, ErrNotRecorded, ErrUnsupported,
// a *StoreError that is Certain, and ErrAcquireUnresolved.
func (l *Locker) Acquire(ctx context.Context, r Request) (st Status, repeated bool, err error) {
	began := l.now()
	st, repeated, err = l.acquire(ctx, r, began.Add(l.cfg.StoreTimeout))
	l.mu.Lock()
	l.observe.Acquired(resultOf(repeated, err), l.now().Sub(began))
	l.mu.Unlock()
	return st, repeated, err
}

func (l *Locker) acquire(ctx context.Context, r Request, deadline Instant) (Status, bool, error) {
	for {
		g, st, obstacle, err := l.register(r)
		switch {
		case err != nil:
			return Status{}, false, err
		case obstacle != nil:
			if err := l.await(ctx, obstacle, deadline); err != nil {
				return Status{}, false, err
			}
		case g == nil:
			return st, true, nil
		case r.Wait > 0:
			st, err := l.waitInLine(ctx, g, r.Wait)
			return st, false, err
		case l.writeNotes() != nil:
			return Status{}, false, l.giveUpUnsent(g)
		default:
			answer, err := l.ask(g, deadline)
			st, err = l.conclude(ctx, g, answer, err)
			return st, false, err
		}
	}
}

// register puts a new grant into the table before its request is sent, so that
// the answer cannot find nobody. Instead it returns the status of the grant
// that the owner holds already, or a chore that must be settled first, or a
// refusal.
func (l *Locker) register(r Request) (*grant, Status, *chore, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if g := l.heldLocked(r.Key, now); g != nil {
		mine := r.Owner != "" && g.owner == r.Owner
		switch p := g.mismatch(r); {
		case mine && p != "":
			return nil, Status{}, nil, &MismatchError{string(p)}
		case mine:
			g.toldLocked(r.Bound)
			l.askedForLocked(g)
			return nil, g.status(now), nil, nil
		case r.Wait == 0:
			return nil, Status{}, nil, l.heldHereLocked(g, now)
		}
	}
	if l.refusing != nil {
		return nil, Status{}, nil, l.refusing
	}
	if r.Owner != "" {
		for _, other := range l.asking[r.Key] {
			if other.owner == r.Owner {
				return nil, Status{}, nil, ErrOwnerBusy
			}
		}
	}
	if c := l.unsettledLocked(r.Key); c != nil && r.Wait == 0 {
		return nil, Status{}, c, nil
	}
	if r.Wait > 0 && l.waiting >= l.cfg.MaxWaiters {
		return nil, Status{}, nil, ErrTooManyWaiters
	}
	if len(l.held)+l.askCount >= l.cfg.MaxHeld {
		return nil, Status{}, nil, ErrTooManyLocks
	}
	l.lastID++
	// The request's strings may be parts of all that its caller has sent, which
	// a held lock would keep in memory.
	g := &grant{
		id: l.lastID, key: Key(strings.Clone(string(r.Key))), owner: strings.Clone(r.Owner), note: strings.Clone(r.Note),
		token: NewToken(l.cfg.Holder), entered: now, asked: now,
		ttl: r.TTL, maxHold: r.MaxHold, minHold: r.MinHold, renew: r.Renew, bound: r.Bound,
	}
	l.asking[g.key] = append(l.asking[g.key], g)
	l.askCount++
	if r.Wait > 0 {
		l.enterLocked(g, r.Wait, now)
	}
	l.newsLocked()
	l.noteLocked(g, PhaseAsking)
	return g, Status{}, nil, nil
}

// heldHereLocked is the answer to others while this sidecar holds the lock:
// nobody needs to ask the store.
func (l *Locker) heldHereLocked(g *grant, now Instant) *HeldError {
	return &HeldError{HeldHere: true, Occupancy: Occupancy{
		State:     OccupancyHeld,
		Holder:    &Holder{Pod: l.cfg.Holder, Since: g.acquired(), Note: g.note},
		ExpiresIn: g.validUntil.Sub(now),
	}}
}

// await waits until a token of ours that may stand in the way is known to be
// gone. If that cannot be learned in time, nothing was asked of the store.
func (l *Locker) await(ctx context.Context, c *chore, deadline Instant) error {
	left := deadline.Sub(l.now())
	if left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-c.settled:
			return nil
		case <-ctx.Done():
			return ErrCallerGone
		case <-timer.C:
		}
	}
	return &StoreError{Reason: StoreTimeout, Certain: true,
		Err: errors.New("an earlier grant of the key is still being given back")}
}

// conclude takes in the outcome of a claim.
func (l *Locker) conclude(ctx context.Context, g *grant, answer Grant, err error) (Status, error) {
	if err == nil {
		err = l.writeGrant(g, answer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if err != nil {
		l.askedLocked(g)
		return Status{}, l.refusedLocked(g, err, now)
	}
	return l.grantLocked(ctx, g, answer, now)
}

// grantLocked takes in a yes.
func (l *Locker) grantLocked(ctx context.Context, g *grant, answer Grant, now Instant) (Status, error) {
	l.askedLocked(g)
	g.granted(answer, now)
	old := l.heldLocked(g.key, now)
	var refusal error
	switch {
	case !l.floor.plausible(answer.Fence, now):
		refusal = &StoreError{Reason: StoreFailed, Certain: true, Err: errors.New("the store granted an implausible fencing token")}
		l.lineLocked(slog.LevelError, "implausible fencing token: the grant is given back", "key", g.key, "fence", answer.Fence)
	case !g.valid(now):
		refusal = ErrAcquireUnresolved
	case old != nil && old.fence > g.fence:
		// The answer was overtaken by that of a later grant, which the store
		// can have made only after it had lost this one.
		refusal = ErrAcquireUnresolved
	case ctx.Err() != nil:
		refusal = ErrCallerGone
	case l.closing:
		refusal = ErrShuttingDown
	}
	if refusal != nil {
		c := l.addChoreLocked(g, true, now)
		l.noteChoreLocked(c)
		l.scheduleLocked(c, now)
		return Status{}, refusal
	}
	if old != nil {
		// The store gave the key away, so the earlier grant's is gone.
		l.loseLocked(old, CauseGone, now)
	}
	l.floor.learn(g.fence)
	l.endings.granted(g.key, g.owner)
	l.held[g.key] = g
	l.byID[g.id] = g
	g.toldLocked(g.bound)
	g.phase = PhaseGranted
	beat := g.beat()
	if g.sent < l.doubtedAt { // it was asked of who decided before, perhaps
		beat.Failures++
	}
	l.dog.Watch(beat)
	return g.status(now), nil
}

// askedLocked takes a grant out of those that are being asked for.
func (l *Locker) askedLocked(g *grant) {
	l.askCount--
	rest := slices.DeleteFunc(l.asking[g.key], func(other *grant) bool { return other == g })
	if len(rest) == 0 {
		delete(l.asking, g.key)
	} else {
		l.asking[g.key] = rest
	}
	l.signalLocked()
	l.newsLocked()
}

// refusedLocked turns the backend's error into the caller's, and undoes what
// may have been done.
func (l *Locker) refusedLocked(g *grant, err error, now Instant) error {
	var held *HeldError
	if errors.As(err, &held) {
		held.HeldHere = l.heldLocked(g.key, now) != nil
		l.orphanLocked(g.key, held)
	}
	if errors.Is(err, ErrKeyConflict) {
		l.conflictLocked(g.key, err)
	}
	if !g.inDoubt {
		if CertainNo(err) {
			l.noteOverLocked(g.id)
			return certainly(err)
		}
		g.unanswered(now)
	}
	l.scheduleLocked(l.addChoreLocked(g, true, now), now)
	if held != nil || errors.Is(err, ErrKeyConflict) {
		return err
	}
	l.lineLocked(slog.LevelWarn, "it is not known whether the lock was taken: undoing it", "key", g.key, "err", err)
	return ErrAcquireUnresolved
}

// orphanLocked tells of a value that nobody can have asked for.
func (l *Locker) orphanLocked(key Key, held *HeldError) {
	if held.ExpiresIn <= l.cfg.MaxTTL+l.cfg.MaxTTL/10 {
		return
	}
	l.observe.Orphan()
	l.lineLocked(slog.LevelWarn, "the key is held for longer than anybody may ask for: the store's clock has stepped back, or the value is an orphan",
		"key", key, "expires_in", held.ExpiresIn)
}

// conflictLocked tells of a value that is not a lock.
func (l *Locker) conflictLocked(key Key, err error) {
	l.observe.Orphan()
	l.lineLocked(slog.LevelWarn, "something that is not a lock lives at the key: an operator must look", "key", key, "err", err)
}

// certainly turns the answers that only the Locker understands into a
// StoreError.
func certainly(err error) error {
	switch {
	case errors.Is(err, ErrLate):
		return &StoreError{Reason: StoreTimeout, Certain: true, Err: err}
	case errors.Is(err, ErrSpent), isLoss(err):
		return &StoreError{Reason: StoreFailed, Certain: true, Err: err}
	}
	return err
}

func resultOf(repeated bool, err error) AcquireResult {
	if err == nil && repeated {
		return AcquireRepeated
	} else if err == nil {
		return AcquireGranted
	}
	var held *HeldError
	var store *StoreError
	switch {
	case errors.As(err, &held) && held.TimedOut:
		return AcquireTimedOut
	case errors.As(err, &held):
		return AcquireHeld
	case errors.Is(err, ErrKeyConflict):
		return AcquireConflict
	case errors.Is(err, ErrAcquireUnresolved):
		return AcquireUnresolved
	case errors.Is(err, ErrCallerGone):
		return AcquireCallerGone
	case errors.As(err, &store):
		return AcquireFailed
	}
	return AcquireRefused
}
