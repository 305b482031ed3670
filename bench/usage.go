package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a Redis server has been asked for, and what that took; since
// its start, or between two looks at it.
type usage struct {
	scripts  int64
	commands int64         // those that scripts run included
	cpu      time.Duration // finer than what /proc tells
}

func (s *redisServer) usage(ctx context.Context) (usage, error) {
	info, err := s.admin.Info(ctx, "commandstats", "stats", "cpu").Result()
	if err != nil {
		return usage{}, err
	}
	return parseUsage(info)
}

func (u usage) since(before usage) usage {
	return usage{u.scripts - before.scripts, u.commands - before.commands, u.cpu - before.cpu}
}

func parseUsage(info string) (u usage, err error) {
	if u.scripts, err = sumCalls(info, "eval", "evalsha", "fcall"); err != nil {
		return u, err
	}
	commands, err := infoNumber(info, "total_commands_processed")
	if err != nil {
		return u, err
	}
	u.commands = int64(commands)
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := infoNumber(info, name)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	return u, nil
}

func infoNumber(info, name string) (float64, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no %s in Redis' INFO", name)
}

// tally is what sidecars have counted: since their start, or between two
// looks at them.
type tally struct {
	polls float64            // calls for a waiter that no wake-up had caused
	calls map[string]float64 // to the store, by operation
}

// storeOps are the operations that contests need.
var storeOps = []string{"acquire", "acquire_in_line", "release", "hand_over", "leave", "renew"}

// tallyUp adds up what the sidecars have counted.
func tallyUp(ctx context.Context, sidecars []*server) (tally, error) {
	t := tally{calls: map[string]float64{}}
	for _, s := range sidecars {
		page, err := s.scrape(ctx)
		if err != nil {
			return t, err
		}
		polls, err := page.sum("locksidecar_polls_total")
		if err != nil {
			return t, err
		}
		t.polls += polls
		for _, op := range storeOps {
			calls, err := page.sum("locksidecar_store_request_duration_seconds_count", `op="`+op+`"`)
			if err != nil {
				return t, err
			}
			t.calls[op] += calls
		}
	}
	return t, nil
}

func (t tally) since(before tally) tally {
	d := tally{polls: t.polls - before.polls, calls: map[string]float64{}}
	for op, calls := range t.calls {
		d.calls[op] = calls - before.calls[op]
	}
	return d
}

// perHandOver tells what was called how often for each of so many hand-overs.
func (t tally) perHandOver(n int) string {
	var parts []string
	for _, op := range storeOps {
		if rate := t.calls[op] / float64(n); rate >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s %.2f", strings.ReplaceAll(op, "_", " "), rate))
		}
	}
	return strings.Join(parts, ", ")
}
