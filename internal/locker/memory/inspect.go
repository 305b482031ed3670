package memory

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Inspect implements [locker.Inspector].
func (b *Backend) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	if err := over(ctx); err != nil {
		return locker.Occupancy{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inspectLocked(key, b.now())
}

func (b *Backend) inspectLocked(key locker.Key, now locker.Instant) (locker.Occupancy, error) {
	r := b.rows.get(key, now)
	if r.foreverTaken() {
		return locker.Occupancy{}, locker.ErrKeyConflict
	}
	l := b.lines.get(key, now)
	o := r.occupancy(now)
	o.QueueLength = len(l.places) - l.deadHeads(now)
	return o, nil
}

// Annotate implements [locker.Annotator].
func (b *Backend) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	if err := over(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.rows.held(key, token, b.now())
	if err != nil {
		return err
	}
	r.grant.note = note
	b.rows.set(key, r)
	return nil
}

// occupancy says in public who has the key, and nothing of its line.
func (r row) occupancy(now locker.Instant) locker.Occupancy {
	if !r.taken() {
		return locker.Occupancy{State: locker.OccupancyFree}
	}
	o := locker.Occupancy{State: locker.OccupancyHeld, ExpiresIn: r.until.Sub(now), Mark: locker.MarkOf(r.value)}
	pod, tombstone, ours := locker.ReadValue(r.value)
	if !ours {
		return o
	}
	o.Holder = &locker.Holder{Pod: pod}
	switch {
	case tombstone == locker.TombstoneMinHold:
		o.State = locker.OccupancyMinHold
	case tombstone == locker.TombstoneBroken && pod == "":
		return locker.Occupancy{State: locker.OccupancyBroken, ExpiresIn: o.ExpiresIn, Mark: o.Mark}
	case tombstone == locker.TombstoneBroken:
		o.State = locker.OccupancyBroken
	case r.value != r.grant.token:
		return o // the record is another grant's
	}
	o.Holder.Since, o.Holder.Note = r.grant.since, r.grant.note
	return o
}
