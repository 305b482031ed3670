package main

import (
	"context"
	"fmt"
	"time"
)

// pod measures the workers of one pod, who all want one key: their sidecar can
// give it back and take it again in one step.
func pod(ctx context.Context, l *lab) ([]row, error) {
	const workers = 8
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
	subject := sidecar.waitingSubject()

	var rate, p50, p99, calls, handingOver []float64
	var kinds string
	c := contest{warmUp: l.slice() / 3, during: 2 * l.slice()}
	for range l.rounds() {
		look := watchUse(ctx, store, []*server{sidecar})
		stints, err := c.competeAmong(ctx, subject, workers, "pod", look.look)
		if err != nil {
			return nil, err
		}
		took := handOvers(stints)
		n := float64(len(stints))
		scripts := float64(look.used.scripts) - look.counted.polls
		rate = append(rate, n/c.during.Seconds())
		p50 = append(p50, float64(percentile(took, 50)))
		p99 = append(p99, float64(percentile(took, 99)))
		calls = append(calls, scripts/n)
		handingOver = append(handingOver, (scripts-n)/n) // every worker joins the line by a call of its own
		kinds = look.counted.perHandOver(len(stints))
	}

	what := fmt.Sprintf("%d workers of one pod on one key", workers)
	line := func(measure, result string) row { return row{What: what, Subject: measure, Result: result} }
	return []row{
		line("cycles", fmt.Sprintf("%.0f/s", median(rate))),
		line("release until the next has it, p50", fineMillis(time.Duration(median(p50)))),
		line("release until the next has it, p99", fineMillis(time.Duration(median(p99)))),
		line("round trips to Redis to hand over", fmt.Sprintf("%.2f", median(handingOver))).
			withGoal("≤ 1", oneDigit(median(handingOver)) <= 1),
		line("and to join the line", fmt.Sprintf("%.2f in all: %s", median(calls), kinds)),
	}, nil
}
