package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// latency measures one worker that acquires and releases one key, over and
// over.
func latency(ctx context.Context, l *lab) ([]row, error) {
	p50, p99 := series{}, series{}
	subjects, err := l.interleave(ctx, 1, func(s subject, clients []client) error {
		took, err := timeCycles(ctx, clients[0], "latency", l.slice())
		if err != nil {
			return err
		}
		p50.add(s.name, float64(percentile(took, 50)))
		p99.add(s.name, float64(percentile(took, 99)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	duration := func(v float64) string { return micros(time.Duration(v)) }
	const what = "acquire + release, one worker"
	rows := p50.rows(what+", p50", subjects, duration)
	rows[0] = rows[0].withGoal("≤ 1.15 × bare handler", p50.ratio(nameSidecar, nameBareHandler) <= 1.15)
	return append(rows, p99.rows(what+", p99", subjects, duration)...), nil
}

// throughput measures many workers, each with a key of its own.
func throughput(ctx context.Context, l *lab) ([]row, error) {
	const workers = 64
	rate := series{}
	subjects, err := l.interleave(ctx, workers, func(s subject, clients []client) error {
		perSecond, err := countCycles(ctx, clients, l.slice())
		if err != nil {
			return err
		}
		rate.add(s.name, perSecond)
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows := rate.rows(fmt.Sprintf("acquire + release, %d workers on own keys", workers), subjects,
		func(v float64) string { return fmt.Sprintf("%.0f/s", v) })
	rows[0] = rows[0].withGoal("≥ 1.20 × bare handler", rate.ratio(nameSidecar, nameBareHandler) >= 1.2)
	return rows, nil
}

// interleave measures every subject once a round, in another order each time,
// so that no subject has the quiet or the warm machine to itself. It returns
// the names of the subjects, ours first.
func (l *lab) interleave(ctx context.Context, workers int, measure func(subject, []client) error) ([]string, error) {
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	subjects, err := l.openSubjects(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	defer stopAll(subjects)

	clients, err := l.warmClients(ctx, subjects, workers)
	defer closeEvery(clients)
	if err != nil {
		return nil, err
	}
	return namesOf(subjects), rotate(l.rounds(), subjects, func(i int) error { return measure(subjects[i], clients[i]) })
}

// warmClients opens so many clients of every subject and has them warm up. Those
// that were opened are returned with an error too, and are to be closed.
func (l *lab) warmClients(ctx context.Context, subjects []subject, workers int) ([][]client, error) {
	clients := make([][]client, len(subjects))
	for i, s := range subjects {
		var err error
		if clients[i], err = s.openClients(ctx, workers); err != nil {
			return clients, fmt.Errorf("%s: %w", s.name, err)
		}
		if _, err := countCycles(ctx, clients[i], l.slice()/4); err != nil {
			return clients, fmt.Errorf("%s, warming up: %w", s.name, err)
		}
	}
	return clients, nil
}

func closeEvery(clients [][]client) {
	for _, ofOne := range clients {
		closeAll(ofOne)
	}
}

// rotate has every subject measured once a round, each round beginning with
// another.
func rotate(rounds int, subjects []subject, measure func(i int) error) error {
	for round := range rounds {
		for i := range subjects {
			i = (i + round) % len(subjects)
			runtime.GC() // so that nobody pays for another's garbage
			if err := measure(i); err != nil {
				return fmt.Errorf("%s: %w", subjects[i].name, err)
			}
		}
	}
	return nil
}

// timeCycles returns how long each cycle took, in nanoseconds.
func timeCycles(ctx context.Context, c client, key string, during time.Duration) ([]int64, error) {
	took := make([]int64, 0, 1<<14)
	for begin := time.Now(); ; {
		start := time.Now()
		if start.Sub(begin) > during {
			return took, nil
		}
		if err := cycle(ctx, c, key); err != nil {
			return nil, err
		}
		took = append(took, int64(time.Since(start)))
	}
}

// countCycles returns the cycles a second that all clients make together.
func countCycles(ctx context.Context, clients []client, during time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		cycles atomic.Int64
		wg     sync.WaitGroup
	)
	begin := time.Now()
	for i, c := range clients {
		wg.Go(func() {
			key := fmt.Sprintf("own-%d", i)
			for time.Since(begin) < during && ctx.Err() == nil {
				if err := cycle(ctx, c, key); err != nil {
					cancel(err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(cycles.Load()) / time.Since(begin).Seconds(), context.Cause(ctx)
}
