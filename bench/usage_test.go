package main

import (
	"testing"
	"time"
)

func TestUsageIsReadFromInfo(t *testing.T) {
	const info = "# Stats\r\ntotal_commands_processed:900\r\n# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:2.500000\r\n" +
		"used_cpu_user_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=40,usec=5\r\ncmdstat_eval:calls=2,usec=9\r\n"
	got, err := parseUsage(info)
	if want := (usage{scripts: 42, commands: 900, cpu: 3750 * time.Millisecond}); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := parseUsage("total_commands_processed:900\r\n"); err == nil {
		t.Errorf("without CPU it is %+v", got)
	}
}

func TestCallsAreToldForEachHandOver(t *testing.T) {
	before := tally{polls: 1, calls: map[string]float64{"acquire_in_line": 10, "release": 5, "renew": 1}}
	after := tally{polls: 4, calls: map[string]float64{"acquire_in_line": 210, "release": 105, "renew": 1}}
	d := after.since(before)
	if d.polls != 3 {
		t.Errorf("%v polls, want 3", d.polls)
	}
	if got, want := d.perHandOver(100), "acquire in line 2.00, release 1.00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
