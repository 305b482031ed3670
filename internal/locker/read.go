package locker

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Get describes the grant that the handle names, if it is held and valid now.
// The errors: ErrNotHeld, *LostError (that grant was ours and was lost),
// ErrOwnerMismatch (another worker of this sidecar holds the lock).
func (l *Locker) Get(key Key, h Handle) (Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	g, err := l.findLocked(key, h, now)
	if err != nil {
		return Status{}, err
	}
	g.published = true
	l.askedForLocked(g)
	return g.status(now), nil
}

// findLocked returns the held grant that the handle names.
func (l *Locker) findLocked(key Key, h Handle, now Instant) (*grant, error) {
	g := l.heldLocked(key, now)
	if g != nil && g.matches(h) {
		return g, nil
	}
	if e := l.endings.find(key, h, now); e != nil && e.lost != nil {
		return nil, e.lost
	}
	if g != nil {
		return nil, ErrOwnerMismatch
	}
	return nil, ErrNotHeld
}

// Holds tells whether this sidecar holds the lock now.
func (l *Locker) Holds(key Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldLocked(key, l.now()) != nil
}

// Lasts tells whether the grant is held now. Unlike Get it does not count as an
// answer that tells of it.
func (l *Locker) Lasts(id GrantID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.byID[id]
	return g != nil && l.aliveLocked(g, l.now())
}

// Inspect asks the store who has the key. It fails with ErrUnsupported where
// the backend cannot tell, else as the backend does.
func (l *Locker) Inspect(ctx context.Context, key Key) (Occupancy, error) {
	inspector, ok := l.backend.(Inspector)
	if !ok {
		return Occupancy{State: OccupancyUnknown}, ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.StoreTimeout)
	defer cancel()
	o, err := inspector.Inspect(ctx, key)
	if err != nil {
		return Occupancy{State: OccupancyUnknown}, err
	}
	return o, nil
}

// List returns all that this sidecar holds, asks for, gives back or has lost,
// newest first.
func (l *Locker) List() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := moment{l.now(), time.Now()}
	var entries []Entry
	for _, g := range l.held {
		if l.aliveLocked(g, at.now) {
			g.published = true
			entries = append(entries, at.held(g))
		}
	}
	for _, asking := range l.asking {
		for _, g := range asking {
			entries = append(entries, at.asking(g, l.lines[g.key]))
		}
	}
	for _, chores := range l.chores {
		for _, c := range chores {
			if c.isListed() {
				entries = append(entries, at.releasing(c))
			}
		}
	}
	for _, e := range l.endings.all(at.now) {
		if e.lost != nil {
			entries = append(entries, at.lost(e))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Key, b.Key), cmp.Compare(a.State, b.State))
	})
	return entries
}

// Stats counts what is held now.
func (l *Locker) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := Stats{Waiting: l.waiting}
	for _, g := range l.held {
		if !g.valid(now) {
			continue
		}
		s.Held++
		if g.state(now) == StateAtRisk {
			s.AtRisk++
		}
		s.OldestHeldFor = max(s.OldestHeldFor, now.Sub(g.asked))
	}
	return s
}
