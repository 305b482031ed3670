package main

import (
	"context"
	"fmt"
	"time"
)

// handOverMeasures are what the section scripts finds, by subject, for one
// number of workers.
type handOverMeasures struct {
	p50, p99, cpu, commands series
	scripts, polls          []float64 // of the sidecars
	kinds                   string
}

// scripts measures what a hand-over takes and costs, by the number of workers.
func scripts(ctx context.Context, l *lab) ([]row, error) {
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

	var rows []row
	for _, workers := range crowds {
		m := handOverMeasures{p50: series{}, p99: series{}, cpu: series{}, commands: series{}}
		err := rotate(l.crowdRounds(), subjects, func(i int) error {
			s := subjects[i]
			watch := watchUse(ctx, store, s.sidecars)
			c := contest{warmUp: l.slice() / 2, during: 2 * l.slice(), hold: time.Millisecond, polite: true}
			stints, err := c.competeAmong(ctx, s, workers, fmt.Sprintf("scripts-%d", workers), watch.look)
			if err != nil {
				return err
			}
			m.add(s.name, stints, watch)
			return nil
		})
		if err != nil {
			return rows, fmt.Errorf("%d workers: %w", workers, err)
		}
		rows = append(rows, m.rows(workers, namesOf(subjects))...)
		for _, name := range namesOf(subjects) {
			l.point("handover_p50", "ms", name, workers, median(m.p50[name])/1e6)
			l.point("handover_p99", "ms", name, workers, median(m.p99[name])/1e6)
			l.point("handover_redis_cpu", "µs", name, workers, median(m.cpu[name])/1e3)
			l.point("handover_redis_commands", "", name, workers, median(m.commands[name]))
		}
		l.point("handover_script_calls", "", nameSidecar, workers, median(m.scripts))
		l.point("handover_polls", "", nameSidecar, workers, median(m.polls))
	}
	return rows, nil
}

func (m *handOverMeasures) add(name string, stints []stint, w *useWatch) {
	took, n := handOvers(stints), float64(len(stints))
	m.p50.add(name, float64(percentile(took, 50)))
	m.p99.add(name, float64(percentile(took, 99)))
	m.cpu.add(name, float64(w.used.cpu)/n)
	m.commands.add(name, float64(w.used.commands)/n)
	if name == nameSidecar {
		m.scripts = append(m.scripts, (float64(w.used.scripts)-w.counted.polls)/n)
		m.polls = append(m.polls, w.counted.polls/n)
		m.kinds = w.counted.perHandOver(len(stints))
	}
}

func (m *handOverMeasures) rows(workers int, names []string) []row {
	what := fmt.Sprintf("hand-over among %d workers", workers)
	var rows []row
	for _, name := range names {
		rows = append(rows, row{What: what, Subject: name, Result: fmt.Sprintf("p50 %s, p99 %s; Redis: %s, %.1f commands",
			fineMillis(time.Duration(median(m.p50[name]))), fineMillis(time.Duration(median(m.p99[name]))),
			micros(time.Duration(median(m.cpu[name]))), median(m.commands[name]))})
	}
	vsRueidis := m.cpu.ratio(nameSidecar, nameRueidislock)
	calls := median(m.scripts)
	return append(rows,
		row{What: what, Subject: nameSidecar + ", Redis' CPU", Result: times(vsRueidis) + " × " + nameRueidislock + "'s"}.
			withGoal("≤ 1.30 ×", vsRueidis <= 1.3),
		row{What: what, Subject: nameSidecar + ", script calls", Result: fmt.Sprintf("%.2f (%s), and %.2f polls", calls, m.kinds, median(m.polls))}.
			withGoal("≤ 3", oneDigit(calls) <= 3))
}
