package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// blocked measures what workers cost who wait for a key that stays held. Each
// subject has Redis for itself: what idle ones ask for would be seen.
func blocked(ctx context.Context, l *lab) ([]row, error) {
	var byCrowd [len(crowds)][]row
	for _, open := range l.waiting() {
		if err := l.blockedOf(ctx, open, byCrowd[:]); err != nil {
			return slices.Concat(byCrowd[:]...), err
		}
	}
	return slices.Concat(byCrowd[:]...), nil
}

// blockedOf adds a subject's rows.
func (l *lab) blockedOf(ctx context.Context, open opener, byCrowd [][]row) error {
	store, err := l.startRedis(ctx)
	if err != nil {
		return err
	}
	defer store.stop()
	s, err := spread(ctx, store.addr, open)
	if err != nil {
		return err
	}
	defer s.stop()
	for i, workers := range crowds {
		commands, scripts, err := l.watchBlocked(ctx, store, s, workers)
		if err != nil {
			return fmt.Errorf("%s, %d workers: %w", s.name, workers, err)
		}
		l.point("blocked_commands", "1/s", s.name, workers, commands)
		l.point("blocked_scripts", "1/s", s.name, workers, scripts)
		r := row{
			What: fmt.Sprintf("%d workers blocked on one held key", workers), Subject: s.name,
			Result: fmt.Sprintf("%.1f commands/s, %.1f script calls/s", commands, scripts),
		}
		if s.name == nameSidecar && workers == 200 {
			r = r.withGoal("≤ 9 script calls/s", oneDigit(scripts) <= 9)
		}
		byCrowd[i] = append(byCrowd[i], r)
	}
	return nil
}

// watchBlocked returns the commands and the script calls a second that reach
// Redis while one worker of a subject has a key and the given number wait for
// it.
func (l *lab) watchBlocked(ctx context.Context, store *redisServer, s subject, workers int) (commands, scripts float64, err error) {
	key := fmt.Sprintf("blocked-%d", workers)
	holder, err := s.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer holder.Close()
	if err := holder.Acquire(ctx, key); err != nil {
		return 0, 0, err
	}
	clients, err := s.openClients(ctx, workers)
	if err != nil {
		return 0, 0, err
	}
	waiting, stop := context.WithCancel(ctx)
	granted := make(chan error, workers)
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			if c.Acquire(waiting, key) == nil {
				granted <- errTwoHolders
			}
		})
	}
	watch := watchUse(ctx, store, s.sidecars)
	during, err := l.lookAtBlocked(ctx, watch, workers)
	stop()
	closeAll(clients) // ends the waits over HTTP
	wg.Wait()
	if err != nil {
		return 0, 0, err
	}
	select {
	case err := <-granted:
		return 0, 0, err
	default:
	}
	err = holder.Release(ctx)
	return float64(watch.used.commands) / during.Seconds(), float64(watch.used.scripts) / during.Seconds(), err
}

func (l *lab) lookAtBlocked(ctx context.Context, watch *useWatch, workers int) (time.Duration, error) {
	const settle = time.Second
	during := 8 * time.Second // in all less than a TTL: some never renew
	if l.quick {
		during = 2 * time.Second
	}
	if err := awaitWaiters(ctx, watch.sidecars, workers); err != nil {
		return 0, err
	}
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := watch.look(); err != nil {
		return 0, err
	}
	if err := pause(ctx, during); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, watch.look()
}

// awaitWaiters returns once sidecars, if there are any, have so many waiters.
func awaitWaiters(ctx context.Context, sidecars []*server, want int) error {
	if len(sidecars) == 0 {
		return nil
	}
	const patience = 15 * time.Second
	for begin := time.Now(); ; {
		var waiting float64
		for _, s := range sidecars {
			page, err := s.scrape(ctx)
			if err != nil {
				return err
			}
			n, err := page.sum("locksidecar_waiters")
			if err != nil {
				return err
			}
			waiting += n
		}
		if waiting == float64(want) {
			return nil
		}
		if time.Since(begin) > patience {
			return fmt.Errorf("%v wait instead of %d", waiting, want)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
