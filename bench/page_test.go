package main

import (
	"strings"
	"testing"
)

func TestAMetricIsSummedOverItsLabels(t *testing.T) {
	page, err := parsePage(strings.NewReader(`# HELP lost_total Lost.
# TYPE lost_total counter
lost_total{cause="gone"} 2
lost_total{cause="a b"} 3e+00

lost_totals 100
held 7
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"lost_total": 5, "held": 7} {
		if got, err := page.sum(name); got != want || err != nil {
			t.Errorf("%s = %v, %v; want %v", name, got, err, want)
		}
	}
	if got, err := page.sum("lost_total", `cause="gone"`); got != 2 || err != nil {
		t.Errorf("with a label: %v, %v; want 2", got, err)
	}
	if got, err := page.sum("lost_total", `cause="other"`); err == nil {
		t.Errorf("a label that is absent passed for %v", got)
	}
	if got, err := page.sum("absent"); err == nil {
		t.Errorf("a metric that is absent passed for %v", got)
	}
	for _, bad := range []string{"nothing", "held seven"} {
		if _, err := parsePage(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestScriptCallsAreSummedOverTheCommands(t *testing.T) {
	const info = "# Commandstats\r\ncmdstat_evalsha:calls=40,usec=5\r\ncmdstat_eval:calls=2,usec=9\r\ncmdstat_evalsha_ro:calls=100,usec=1\r\n"
	got, err := sumCalls(info, "eval", "evalsha")
	if err != nil || got != 42 {
		t.Errorf("%d calls, %v; want 42", got, err)
	}
	if _, err := sumCalls("cmdstat_eval:calls=x,", "eval"); err == nil {
		t.Error("nonsense was counted")
	}
}

func TestTheLiveHeapIsWhatTheNextCollectionIsReckonedFrom(t *testing.T) {
	page := metricsPage{"go_memstats_next_gc_bytes": 3e6, "go_gc_gogc_percent": 50}
	if got, err := page.liveHeap(); got != 2e6 || err != nil {
		t.Errorf("%d, %v; want 2000000", got, err)
	}
	if got, err := (metricsPage{"go_memstats_next_gc_bytes": 3e6}).liveHeap(); err == nil {
		t.Errorf("without GOGC it is %d", got)
	}
}
