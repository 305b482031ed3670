package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const heldLocks = 10_000

// held measures what it costs to keep many locks, and how fast they are given
// back when the sidecar is told to end.
func held(ctx context.Context, l *lab) (_ []row, err error) {
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

	// The first requests make what a process keeps whether it holds locks or
	// not: connections, buffers, the scripts in Redis.
	keys := heldKeys()
	if err := takeAll(ctx, sidecar.addr, keys[:500]); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	if err := releaseAll(ctx, sidecar.addr, keys[:500]); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	before, err := memoryOf(sidecar.pid())
	if err != nil {
		return nil, err
	}
	if err := takeAll(ctx, sidecar.addr, keys); err != nil {
		return nil, fmt.Errorf("take %d locks: %w", heldLocks, err)
	}

	watch, err := l.watchHeld(ctx, sidecar, store, keys)
	if err != nil {
		return nil, err
	}
	end, err := terminate(ctx, sidecar, store, keys)
	if err != nil {
		return nil, err
	}
	return heldRows(before, watch, end), nil
}

func heldRows(before memory, w heldWatch, end ending) []row {
	what := fmt.Sprintf("%d locks held, TTL %v", heldLocks, ttl)
	perLock := (w.memory.rss - before.rss) / heldLocks
	line := func(measure, result string) row {
		return row{What: what, Subject: measure, Result: result}
	}
	return []row{
		line("CPU of the sidecar", coreShare(w.sidecarCPU, w.during)).
			withGoal("≤ 2 % of a core", percentOf(w.sidecarCPU, w.during) <= 2),
		line("CPU of Redis", coreShare(w.redisCPU, w.during)).
			withGoal("≤ 2 % of a core", percentOf(w.redisCPU, w.during) <= 2),
		line("script calls", fmt.Sprintf("%.1f/s", float64(w.scriptCalls)/w.during.Seconds())),
		line("memory a lock (RSS)", fmt.Sprintf("%d B", perLock)).withGoal("≤ 1 KiB", perLock <= 1024),
		line("live heap a lock, all heap counted", fmt.Sprintf("%d B", w.heap/heldLocks)),
		line("memory in all (RSS)", mebibytes(w.memory.rss)),
		line("latest renewal, after TTL/3", millis(w.latest)).withGoal("≤ 500 ms", w.latest <= 500*time.Millisecond),
		line("locks lost", fmt.Sprint(w.lost)).withGoal("0", w.lost == 0),
		line("SIGTERM until the last key is gone", millis(end.gone)).withGoal("≤ 500 ms", end.gone <= 500*time.Millisecond),
		line("SIGTERM until the exit", millis(end.exited)),
		line("exit code", fmt.Sprint(end.code)).withGoal("0", end.code == 0),
	}
}

func heldKeys() []string {
	keys := make([]string, heldLocks)
	for i := range keys {
		keys[i] = fmt.Sprintf("held-%05d", i)
	}
	return keys
}

func takeAll(ctx context.Context, addr string, keys []string) error {
	return each(ctx, addr, keys, func(conn *httpConn, key string) error {
		return conn.want(http.StatusCreated, http.MethodPost, "/locks/"+key, "ttl=30s")
	})
}

func releaseAll(ctx context.Context, addr string, keys []string) error {
	return each(ctx, addr, keys, func(conn *httpConn, key string) error {
		return conn.want(http.StatusNoContent, http.MethodDelete, "/locks/"+key, "")
	})
}

// each spreads the keys over a few connections, which it closes at the end.
func each(ctx context.Context, addr string, keys []string, do func(*httpConn, string) error) error {
	const connections = 8
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			conn, err := dialHTTP(ctx, addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			for k := i; k < len(keys) && errs[i] == nil; k += connections {
				errs[i] = do(conn, keys[k])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
