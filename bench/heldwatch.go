package main

import (
	"context"
	"fmt"
	"time"
)

// heldWatch is what was seen while the locks were held.
type heldWatch struct {
	during               time.Duration
	sidecarCPU, redisCPU time.Duration
	scriptCalls          int64
	memory               memory        // of the sidecar, at the end
	heap                 int64         // of the sidecar, live at its last garbage collection
	latest               time.Duration // the worst renewal, counted from when it was due
	lost                 int
}

// watchHeld looks on for a whole number of renewal periods, so that it sees
// each lock renewed equally often.
func (l *lab) watchHeld(ctx context.Context, sidecar *server, store *redisServer, keys []string) (heldWatch, error) {
	var sample []string
	for i := 0; i < len(keys); i += 50 {
		sample = append(sample, lockPrefix+keys[i])
	}
	renewals := newRenewalWatch(sample, ttl)
	during := 4 * ttl / 3
	if l.quick {
		during = 2 * ttl / 3
	}

	first, err := readCosts(ctx, sidecar, store)
	if err != nil {
		return heldWatch{}, err
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for over := time.After(during); over != nil; {
		if err := renewals.look(ctx, store); err != nil {
			return heldWatch{}, err
		}
		select {
		case <-ctx.Done():
			return heldWatch{}, ctx.Err()
		case <-tick.C:
		case <-over:
			over = nil
		}
	}
	last, err := readCosts(ctx, sidecar, store)
	if err != nil {
		return heldWatch{}, err
	}
	w := heldWatch{
		during:      last.at.Sub(first.at),
		sidecarCPU:  last.sidecar - first.sidecar,
		redisCPU:    last.redis - first.redis,
		scriptCalls: last.scripts - first.scripts,
	}
	if w.memory, err = memoryOf(sidecar.pid()); err != nil {
		return heldWatch{}, err
	}
	if err := renewals.look(ctx, store); err != nil {
		return heldWatch{}, err
	}
	w.latest = renewals.latest
	page, err := sidecar.scrape(ctx)
	if err != nil {
		return heldWatch{}, err
	}
	if w.heap, err = page.liveHeap(); err != nil {
		return heldWatch{}, err
	}
	w.lost, err = countLost(page)
	return w, err
}

// countLost returns how many locks were lost, having made sure that the others
// are held.
func countLost(page metricsPage) (int, error) {
	lost, err := page.sum("locksidecar_locks_lost_total")
	if err != nil {
		return 0, err
	}
	held, err := page.sum("locksidecar_locks_held")
	if err != nil {
		return 0, err
	}
	if held+lost != heldLocks {
		return 0, fmt.Errorf("%v locks are held and %v were lost, of %d", held, lost, heldLocks)
	}
	return int(lost), nil
}

type costs struct {
	at             time.Time
	sidecar, redis time.Duration // CPU
	scripts        int64
}

func readCosts(ctx context.Context, sidecar *server, store *redisServer) (c costs, err error) {
	if c.scripts, err = store.scriptCalls(ctx); err != nil {
		return c, err
	}
	c.at = time.Now()
	if c.sidecar, err = cpuTime(sidecar.pid()); err != nil {
		return c, err
	}
	c.redis, err = cpuTime(store.pid())
	return c, err
}
