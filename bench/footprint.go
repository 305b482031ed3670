package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	footprintLocks   = 200
	footprintTTL     = 5 * time.Second
	footprintIdle    = 3000
	footprintWaiters = 2000
	footprintKeys    = 20 // that the waiters wait for
)

// footprint measures one sidecar that has as much to do as it may: locks to
// renew often, idle connections, and as many waiters as it admits.
func footprint(ctx context.Context, l *lab) (_ []row, err error) {
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	sidecar, err := l.startSidecar(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	defer sidecar.kill()

	started, err := memoryOf(sidecar.pid())
	if err != nil {
		return nil, err
	}
	idle, err := openIdle(ctx, sidecar.addr, footprintIdle)
	if err != nil {
		return nil, err
	}
	defer closeAll(idle)
	keys := make([]string, footprintLocks)
	for i := range keys {
		keys[i] = fmt.Sprintf("footprint-%d", i)
	}
	err = each(ctx, sidecar.addr, keys, func(conn *httpConn, key string) error {
		return conn.want(http.StatusCreated, http.MethodPost, "/locks/"+key, "ttl="+footprintTTL.String())
	})
	if err != nil {
		return nil, err
	}
	connected, err := memoryOf(sidecar.pid())
	if err != nil {
		return nil, err
	}

	waiters, err := sidecar.waitingSubject().openClients(ctx, footprintWaiters)
	if err != nil {
		return nil, err
	}
	if err := holdByHand(ctx, store); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer closeAll(waiters) // ends the waits
	ended := make(chan error, len(waiters))
	for i, w := range waiters {
		wg.Go(func() {
			err := w.Acquire(ctx, contestedKey(i))
			for err != nil && strings.Contains(err.Error(), "status 503") { // so many come at once; it is to be asked again
				err = w.Acquire(ctx, contestedKey(i))
			}
			ended <- err
		})
	}
	w, err := l.watchFootprint(ctx, sidecar, store, keys)
	select {
	case why := <-ended: // tells more than that it was missed
		return nil, fmt.Errorf("a wait has ended: %w", cmp.Or(why, errTwoHolders))
	default:
	}
	if err != nil {
		return nil, err
	}
	const what = "one sidecar, 2,000 waiters, 3,000 idle connections, 200 locks of 5 s"
	line := func(measure, result string) row { return row{What: what, Subject: measure, Result: result} }
	return []row{
		line("memory (RSS), greatest", mebibytes(w.rss)).withGoal("< 64 MiB", w.rss < 64<<20),
		line("memory an idle connection", fmt.Sprintf("%.1f KiB", kibEach(connected.rss-started.rss, footprintIdle))),
		line("memory a waiter, its connection included", fmt.Sprintf("%.1f KiB", kibEach(w.rss-connected.rss, footprintWaiters))),
		line("latest renewal, after TTL/3", millis(w.latest)),
		line("locks at risk, most at a time", fmt.Sprint(w.atRisk)).withGoal("0", w.atRisk == 0),
		line("locks lost", fmt.Sprint(w.lost)).withGoal("0", w.lost == 0),
		line("CPU of the sidecar", coreShare(w.cpu, w.during)),
	}, nil
}

func kibEach(bytes int64, n int) float64 { return float64(bytes) / float64(n) / 1024 }

func contestedKey(waiter int) string { return fmt.Sprintf("contested-%d", waiter%footprintKeys) }

// holdByHand takes the keys that the waiters want, as somebody who uses Redis
// without a sidecar.
func holdByHand(ctx context.Context, store *redisServer) error {
	for i := range footprintKeys {
		if err := store.admin.Set(ctx, lockPrefix+contestedKey(i), "somebody", longestWait).Err(); err != nil {
			return err
		}
	}
	return nil
}

// openIdle opens kept-alive connections, each of which has served one request.
func openIdle(ctx context.Context, addr string, n int) ([]client, error) {
	all := make([]client, 0, n)
	for range n {
		conn, err := dialHTTP(ctx, addr)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, &httpClient{conn: conn})
		if err := conn.want(http.StatusNotFound, http.MethodGet, "/locks/nobodys", ""); err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}

// footprintWatch is what was seen of a busy sidecar.
type footprintWatch struct {
	during, cpu, latest time.Duration
	rss                 int64
	atRisk, lost        float64
}

// watchFootprint looks on from when all wait.
func (l *lab) watchFootprint(ctx context.Context, sidecar *server, store *redisServer, keys []string) (w footprintWatch, err error) {
	const settle, every = time.Second, 250 * time.Millisecond
	looks := 60
	if l.quick {
		looks = 16
	}
	if err := awaitWaiters(ctx, []*server{sidecar}, footprintWaiters); err != nil {
		return w, err
	}
	if err := pause(ctx, settle); err != nil {
		return w, err
	}
	prefixed := slices.Clone(keys)
	for i := range prefixed {
		prefixed[i] = lockPrefix + prefixed[i]
	}
	renewals := newRenewalWatch(prefixed, footprintTTL)
	begin := time.Now()
	before, err := cpuTime(sidecar.pid())
	if err != nil {
		return w, err
	}
	for range looks {
		if err := pause(ctx, every); err != nil {
			return w, err
		}
		if err := w.look(ctx, sidecar); err != nil {
			return w, err
		}
		if err := renewals.look(ctx, store); err != nil {
			return w, err
		}
	}
	after, err := cpuTime(sidecar.pid())
	w.during, w.cpu, w.latest = time.Since(begin), after-before, renewals.latest
	return w, err
}

func (w *footprintWatch) look(ctx context.Context, sidecar *server) error {
	m, err := memoryOf(sidecar.pid())
	if err != nil {
		return err
	}
	page, err := sidecar.scrape(ctx)
	if err != nil {
		return err
	}
	atRisk, err := page.sum("locksidecar_locks_at_risk")
	if err != nil {
		return err
	}
	lost, err := page.sum("locksidecar_locks_lost_total")
	if err != nil {
		return err
	}
	held, err := page.sum("locksidecar_locks_held")
	if err != nil {
		return err
	}
	if held+lost < footprintLocks {
		return errors.New("locks are gone that nobody released or lost")
	}
	w.rss, w.atRisk, w.lost = max(w.rss, m.rss), max(w.atRisk, atRisk), lost
	return nil
}
