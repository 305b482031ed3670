package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Inspect implements [locker.Inspector]. It is unknown who has the key unless a
// majority says the same.
func (b *Backend) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	seen, err := b.look(ctx, func(ctx context.Context, n *node) (locker.Sighting, error) {
		o, err := n.Inspect(ctx, key)
		return locker.Sighting{Occupancy: o}, err
	})
	return seen.Occupancy, err
}

// look has all members describe one key, and returns what a majority says.
func (b *Backend) look(ctx context.Context, ask func(context.Context, *node) (locker.Sighting, error)) (locker.Sighting, error) {
	if err := over(ctx); err != nil {
		return locker.Sighting{}, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s := &survey{b: b, same: make(map[uint64][]locker.Sighting), done: make(chan struct{})}
	for i, n := range b.nodes {
		working := b.crew.start(func() {
			ctx, cancel := detached(ctx, 0)
			defer cancel()
			seen, err := ask(ctx, n)
			s.take(i, seen, err)
		})
		if !working {
			s.take(i, locker.Sighting{}, errClosed)
		}
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	return s.result()
}

// survey is what the members say of one key.
type survey struct {
	b *Backend

	mu       sync.Mutex
	answers  int
	conflict int
	same     map[uint64][]locker.Sighting // by mark; what is free has none
	line     int                          // the greatest length of a line
	errs     []error
	agreed   bool
	done     chan struct{}
}

func (s *survey) take(i int, o locker.Sighting, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	switch {
	case errors.Is(err, locker.ErrKeyConflict), err == nil && o.State == locker.OccupancyUnknown:
		s.conflict++
	case err != nil:
		s.errs = append(s.errs, &memberError{s.b.nodes[i].name, err})
	default:
		s.same[o.Mark] = append(s.same[o.Mark], o)
	}
	s.line = max(s.line, o.QueueLength)
	agreed := s.conflict >= s.b.need || err == nil && len(s.same[o.Mark]) >= s.b.need
	if !s.agreed && (agreed || s.answers == len(s.b.nodes)) {
		s.agreed = true
		close(s.done)
	}
}

func (s *survey) result() (locker.Sighting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conflict >= s.b.need {
		return locker.Sighting{}, locker.ErrKeyConflict
	}
	told := s.conflict
	for _, same := range s.same {
		told += len(same)
		if len(same) >= s.b.need {
			occupancies := make([]locker.Occupancy, len(same))
			for i, seen := range same {
				occupancies[i] = seen.Occupancy
			}
			o := together(occupancies, s.b.need)
			o.QueueLength = s.line
			return locker.Sighting{Occupancy: o, Token: same[0].Token}, nil
		}
	}
	if told < s.b.need {
		return locker.Sighting{}, &locker.StoreError{Reason: locker.StoreNoQuorum, Certain: true, Err: errors.Join(s.errs...)}
	}
	return locker.Sighting{Occupancy: locker.Occupancy{State: locker.OccupancyUnknown, QueueLength: s.line}}, nil
}
