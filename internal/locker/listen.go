package locker

import (
	"context"
	"sync"
	"time"
)

// linger is how long hints are listened for after the last waiter has left:
// the next one often comes soon, and subscribing costs a round trip.
const linger = 5 * time.Second

// listenWhileWaiting listens for the store's hints while anybody waits here,
// until ctx is over.
func (l *Locker) listenWhileWaiting(ctx context.Context) {
	if l.line == nil {
		return
	}
	for l.awaitWaiters(ctx, true, 0) {
		listening, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { l.line.Listen(listening, l.process, l.hear) })
		for !l.awaitWaiters(ctx, false, linger) && ctx.Err() == nil {
		}
		stop()
		wg.Wait()
	}
}

// awaitWaiters returns true once there are waiters, or none, as asked for, and
// that has been so for a while; false if that did not come about or ctx is over.
func (l *Locker) awaitWaiters(ctx context.Context, some bool, stable time.Duration) bool {
	for {
		l.mu.Lock()
		is := l.waiting > 0 == some
		l.mu.Unlock()
		var after <-chan time.Time
		if is {
			if stable == 0 {
				return ctx.Err() == nil
			}
			timer := time.NewTimer(stable)
			defer timer.Stop()
			after = timer.C
		}
		select {
		case <-ctx.Done():
			return false
		case <-l.listen:
			if is {
				return false // it has changed: begin anew
			}
		case <-after:
			return true
		}
	}
}

func (l *Locker) pokeListener() {
	select {
	case l.listen <- struct{}{}:
	default:
	}
}

// depart tells the store of callers that have left the line.
func (l *Locker) depart(departures []departure) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, d := range departures {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), l.cfg.StoreTimeout)
			defer cancel()
			if err := l.line.Leave(ctx, d.key, d.turn); err != nil {
				l.log.Debug("place in line not given up: it ends by itself", "key", d.key, "err", err)
			}
		})
	}
}
