package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// contest is how workers compete for one key.
type contest struct {
	warmUp, during time.Duration // from when all have begun
	hold           time.Duration // how long each keeps the lock
	// polite has a worker that has released stand back until another has the
	// lock. Without it, who polls is overtaken by those who have just
	// released, and what a hand-over takes cannot be seen.
	polite bool
}

// stint is one worker's time with the lock. The worker knows that it has the
// lock from granted to releasing: that is inside of the time in which the
// store says so, at both ends.
type stint struct {
	worker                              int
	asked, granted, releasing, released time.Time
}

var errTwoHolders = errors.New("two workers had the lock at the same time")

// compete has the clients, whose Acquire waits, take turns at a key, and looks
// on when the time that counts begins and when it ends. It returns the stints
// that were granted in between, in order of grant, after having made sure that
// no two of all overlapped.
func (c contest) compete(ctx context.Context, clients []client, key string, look func() error) ([]stint, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()

	g := newGate(c.polite)
	stints := make([][]stint, len(clients))
	var wg sync.WaitGroup
	for i, worker := range clients {
		// One after the other: the order of arrival stays the order of service,
		// and the workers of one instance shall not be one behind the other.
		_ = pause(ctx, time.Millisecond)
		wg.Go(func() {
			defer g.open()
			for !g.isOpen() && ctx.Err() == nil {
				s, err := c.stint(ctx, waiting, worker, key, g)
				switch {
				case err != nil && g.isOpen() && waiting.Err() != nil:
					return // it waited beyond the end
				case err != nil:
					cancel(fmt.Errorf("worker %d: %w", i, err))
					return
				}
				s.worker = i
				stints[i] = append(stints[i], s)
			}
		})
	}
	begin, end, err := c.watch(ctx, look)
	if err != nil {
		cancel(err)
	}
	g.open()
	// All have their turn before the next contest, unless that takes too long.
	const patience = 5 * time.Second
	late := time.AfterFunc(patience, giveUp)
	defer late.Stop()
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	all := slices.Concat(stints...)
	if err := inOrder(all); err != nil {
		return nil, err
	}
	counted := slices.DeleteFunc(all, func(s stint) bool { return s.granted.Before(begin) || s.granted.After(end) })
	if len(counted) == 0 {
		return nil, fmt.Errorf("nobody got the lock for %v", c.during)
	}
	return counted, nil
}

// competeAmong is compete for n new clients of a subject. A server need not
// keep a connection that is not used at once.
func (c contest) competeAmong(ctx context.Context, s subject, n int, key string, look func() error) ([]stint, error) {
	clients, err := s.openClients(ctx, n)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	return c.compete(ctx, clients, key, look)
}

func (c contest) watch(ctx context.Context, look func() error) (begin, end time.Time, err error) {
	if err := pause(ctx, c.warmUp); err != nil {
		return begin, end, err
	}
	if err := look(); err != nil {
		return begin, end, err
	}
	begin = time.Now()
	if err := pause(ctx, c.during); err != nil {
		return begin, end, err
	}
	end = time.Now()
	return begin, end, look()
}

// stint takes the lock once, unless waiting ends before, and gives it back.
func (c contest) stint(ctx, waiting context.Context, worker client, key string, g *gate) (s stint, err error) {
	stop := context.AfterFunc(waiting, worker.Close) // who waits over HTTP knows nothing of it
	s.asked = time.Now()
	err = worker.Acquire(waiting, key)
	stop()
	if err != nil {
		return s, err
	}
	s.granted = time.Now()
	turn := g.granted()
	if c.hold > 0 {
		if err := pause(ctx, c.hold); err != nil {
			return s, err
		}
	}
	s.releasing = time.Now()
	if err := worker.Release(ctx); err != nil {
		return s, err
	}
	s.released = time.Now()
	g.standBack(turn)
	return s, nil
}

// inOrder sorts stints by grant. It is an error if two overlap.
func inOrder(stints []stint) error {
	slices.SortFunc(stints, func(a, b stint) int { return a.granted.Compare(b.granted) })
	for i := 1; i < len(stints); i++ {
		if before, s := stints[i-1], stints[i]; s.granted.Before(before.releasing) {
			return fmt.Errorf("%w: %d for %v", errTwoHolders, []int{before.worker, s.worker}, before.releasing.Sub(s.granted))
		}
	}
	return nil
}

// handOvers returns, in nanoseconds, the times from the begin of a release to
// the grant that follows it, where another worker gets it.
func handOvers(stints []stint) []int64 {
	var took []int64
	for i := 1; i < len(stints); i++ {
		if before, s := stints[i-1], stints[i]; s.worker != before.worker {
			took = append(took, int64(s.granted.Sub(before.releasing)))
		}
	}
	return took
}

// rounds returns, in nanoseconds, how long each stint took with the wait for
// it.
func rounds(stints []stint) []int64 {
	took := make([]int64, len(stints))
	for i, s := range stints {
		took[i] = int64(s.released.Sub(s.asked))
	}
	return took
}

// share is how often each of the workers had the lock.
func share(stints []stint, workers int) (least, most int) {
	had := make([]int, workers)
	for _, s := range stints {
		had[s.worker]++
	}
	return slices.MinFunc(had, cmp.Compare[int]), slices.MaxFunc(had, cmp.Compare[int])
}
