package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	handOverWorkers = 32
	nameOneBare     = nameBareHandler + ", one worker"
)

// handover measures workers who all want one key, without a pause: how often
// it changes hands, how evenly, and how long a worker's turn takes.
func handover(ctx context.Context, l *lab) ([]row, error) {
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	subjects, err := l.openWaiting(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	defer stopAll(subjects)

	rate, uneven, p50, p99, spread := series{}, series{}, series{}, series{}, series{}
	c := contest{warmUp: l.slice() / 3, during: 2 * l.slice()}
	err = rotate(l.rounds(), subjects, func(i int) error {
		name := subjects[i].name
		if name == nameBareHandler {
			alone, err := rateOfOne(ctx, subjects[i], l.slice())
			if err != nil {
				return err
			}
			rate.add(nameOneBare, alone)
		}
		stints, err := c.competeAmong(ctx, subjects[i], handOverWorkers, "handover", func() error { return nil })
		if err != nil {
			return err
		}
		least, most := share(stints, handOverWorkers)
		turns := rounds(stints)
		mean := float64(c.during) * handOverWorkers / float64(len(stints))
		rate.add(name, float64(len(stints))/c.during.Seconds())
		uneven.add(name, float64(most)/float64(least))
		p50.add(name, float64(percentile(turns, 50)))
		p99.add(name, float64(percentile(turns, 99)))
		spread.add(name, float64(percentile(turns, 99))/mean)
		return nil
	})
	if err != nil {
		return nil, err
	}

	names := namesOf(subjects)
	what := fmt.Sprintf("%d workers on one key", handOverWorkers)
	duration := func(v float64) string { return fineMillis(time.Duration(v)) }
	rows := rate.rowsAgainst(nameOneBare, what+", cycles", append(names, nameOneBare),
		func(v float64) string { return fmt.Sprintf("%.0f/s", v) })
	rows[0] = rows[0].withGoal("≥ 0.80 × bare handler, one worker", rate.ratio(nameSidecar, nameOneBare) >= 0.8)
	fair := plainRows(uneven, what+", most by least cycles of a worker", names, times)
	fair[0] = fair[0].withGoal("≤ 1.2", rounded(median(uneven[nameSidecar])) <= 1.2)
	rows = append(rows, fair...)
	rows = append(rows, plainRows(p50, what+", turn of a worker, p50", names, duration)...)
	rows = append(rows, plainRows(p99, what+", turn of a worker, p99", names, duration)...)
	tail := plainRows(spread, what+", p99 by the mean turn", names, times)
	tail[0] = tail[0].withGoal("≤ 2", rounded(median(spread[nameSidecar])) <= 2)
	return append(rows, tail...), nil
}

// rateOfOne returns the cycles a second of one worker, with the key for itself.
func rateOfOne(ctx context.Context, s subject, during time.Duration) (float64, error) {
	clients, err := s.openClients(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer closeAll(clients)
	return countCycles(ctx, clients, during)
}

// times formats a multiple. One by 0 stands for a worker that got nothing.
func times(v float64) string {
	if math.IsInf(v, 1) {
		return "some got none"
	}
	return fmt.Sprintf("%.2f", v)
}

// rounded is v as times shows it.
func rounded(v float64) float64 { return math.Round(100*v) / 100 }

// plainRows makes a row of each subject's median, without ratios.
func plainRows(s series, what string, subjects []string, format func(float64) string) []row {
	var rows []row
	for _, name := range subjects {
		rows = append(rows, row{What: what, Subject: name, Result: format(median(s[name]))})
	}
	return rows
}
