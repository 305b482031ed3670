package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// idle measures the sidecar when it has nothing to do, and its start.
func idle(ctx context.Context, l *lab) ([]row, error) {
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	size, err := os.Stat(l.sidecar)
	if err != nil {
		return nil, err
	}
	start, err := l.startTime(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	mem, cpu, err := l.watchIdle(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	const (
		what   = "idle"
		mostMB = 14 << 20
	)
	return []row{
		row{What: what, Subject: "memory (RSS)", Result: mebibytes(mem.rss)}.withGoal("≤ 14 MiB", mem.rss <= mostMB),
		{What: what, Subject: "memory (PSS)", Result: mebibytes(mem.pss)},
		row{What: what, Subject: "CPU", Result: fmt.Sprintf("%.1f m", 10*cpu)}.withGoal("≤ 2 m", 10*cpu <= 2),
		{What: what, Subject: "program, stripped", Result: mebibytes(size.Size())},
		row{What: what, Subject: "start until ready", Result: fmt.Sprintf("%.1f ms", start.Seconds()*1e3)}.
			withGoal("≤ 50 ms", start <= 50*time.Millisecond),
	}, nil
}

// startTime is the median time from the start of the process until it says
// that it is ready.
func (l *lab) startTime(ctx context.Context, redisAddr string) (time.Duration, error) {
	const starts = 11
	var took []float64
	for range starts {
		begin := time.Now()
		s, err := l.launchSidecar(redisAddr)
		if err != nil {
			return 0, err
		}
		err = s.awaitStatus(ctx, "http://"+s.admin+"/readyz", http.StatusOK)
		took = append(took, float64(time.Since(begin)))
		s.kill()
		if err != nil {
			return 0, err
		}
	}
	return time.Duration(median(took)), nil
}

// watchIdle returns the memory and, in percent of a core, the CPU of a sidecar
// that has been up for a while.
func (l *lab) watchIdle(ctx context.Context, redisAddr string) (m memory, cpu float64, err error) {
	const settle = 7 * time.Second // by then it has given back what its start has needed
	during := 10 * time.Second
	if l.quick {
		during = 3 * time.Second
	}
	s, err := l.startSidecar(ctx, redisAddr)
	if err != nil {
		return m, 0, err
	}
	defer s.kill()
	if err := pause(ctx, settle); err != nil {
		return m, 0, err
	}
	begin := time.Now()
	before, err := cpuTime(s.pid())
	if err != nil {
		return m, 0, err
	}
	if err := pause(ctx, during); err != nil {
		return m, 0, err
	}
	after, err := cpuTime(s.pid())
	if err != nil {
		return m, 0, err
	}
	cpu = percentOf(after-before, time.Since(begin))
	m, err = memoryOf(s.pid())
	return m, cpu, err
}
