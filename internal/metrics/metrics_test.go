package metrics

import (
	"errors"
	"flag"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// quiet is a Config of a process that does nothing.
func quiet() Config {
	return Config{
		Version: "v1.2.3", Commit: "abcdef0", GoVersion: "go1.26.8",
		Mode: "single", Scope: Scope("lock:", "0", "127.0.0.1:6379"),
		MetricKeys: []locker.Key{"reports/nightly", "cleanup", "cleanup"},
		Stats:      func() locker.Stats { return locker.Stats{} },
		HeldKey:    func(locker.Key) bool { return false },
		StoreUp:    func() bool { return false },
		NodesUp:    func() map[string]bool { return map[string]bool{"127.0.0.1:6379": false, "127.0.0.1:6380": true} },
		Warnings:   func() map[string]bool { return map[string]bool{"eviction": false, "persistence": false} },
		Log:        slog.New(slog.DiscardHandler),
	}
}

func page(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("the page answered %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// ownLines are the page's lines that this package is responsible for, without
// the buckets.
func ownLines(page string) string {
	var own strings.Builder
	for line := range strings.Lines(page) {
		if strings.Contains(line, "locksidecar_") && !strings.Contains(line, "_bucket{") {
			own.WriteString(line)
		}
	}
	return own.String()
}

// wantLine fails unless the page has the line, which shows the page's lines
// of that metric.
func wantLine(t *testing.T, page, want string) {
	t.Helper()
	name, _, _ := strings.Cut(want, " ")
	name, _, _ = strings.Cut(name, "{")
	var seen []string
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if line == want {
			return
		}
		if strings.HasPrefix(line, name) {
			seen = append(seen, line)
		}
	}
	t.Errorf("no line %q on the page, but\n%s", want, strings.Join(seen, "\n"))
}

func TestEverySeriesExistsFromTheStart(t *testing.T) {
	got := ownLines(page(t, New(quiet())))
	golden := filepath.Join("testdata", "fresh_page.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("a fresh page differs from %s (rewrite it with -update): it lacks\n%sand has besides\n%s",
			golden, linesWithout(string(want), got), linesWithout(got, string(want)))
	}
}

// linesWithout returns the lines of text that other does not have.
func linesWithout(text, other string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !slices.Contains(slices.Collect(strings.Lines(other)), line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestEveryListedLabelValueIsThere(t *testing.T) {
	p := page(t, New(quiet()))
	for _, v := range locker.AcquireResults {
		wantLine(t, p, `locksidecar_acquires_total{result="`+string(v)+`"} 0`)
	}
	for _, v := range locker.ReleaseResults {
		wantLine(t, p, `locksidecar_releases_total{result="`+string(v)+`"} 0`)
	}
	for _, v := range locker.RenewResults {
		wantLine(t, p, `locksidecar_renewals_total{result="`+string(v)+`"} 0`)
	}
	for _, v := range locker.Causes {
		wantLine(t, p, `locksidecar_locks_lost_total{cause="`+string(v)+`"} 0`)
	}
	for _, v := range locker.StoreReasons {
		wantLine(t, p, `locksidecar_store_errors_total{reason="`+string(v)+`"} 0`)
	}
}

func TestThePageHasNoLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(New(quiet()).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, namespace) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestTwoMetricsShareNothing(t *testing.T) {
	a, b := New(quiet()), New(quiet())
	a.Orphan()
	wantLine(t, page(t, a), "locksidecar_orphans_total 1")
	wantLine(t, page(t, b), "locksidecar_orphans_total 0")
}

func TestTheScrapeShowsWhatIsSoNow(t *testing.T) {
	stats, up, warns := locker.Stats{}, false, false
	c := quiet()
	c.Stats = func() locker.Stats { return stats }
	c.HeldKey = func(k locker.Key) bool { return k == "cleanup" && stats.Held > 0 }
	c.StoreUp = func() bool { return up }
	c.Warnings = func() map[string]bool { return map[string]bool{"eviction": warns} }
	m := New(c)

	wantLine(t, page(t, m), "locksidecar_locks_held 0")
	stats = locker.Stats{Held: 3, AtRisk: 1, Waiting: 7, OldestHeldFor: 1500 * time.Millisecond}
	up, warns = true, true

	p := page(t, m)
	for _, line := range []string{
		"locksidecar_locks_held 3",
		"locksidecar_locks_at_risk 1",
		"locksidecar_waiters 7",
		"locksidecar_oldest_lock_age_seconds 1.5",
		"locksidecar_store_up 1",
		`locksidecar_warnings{check="eviction"} 1`,
		`locksidecar_lock_held{key="cleanup"} 1`,
		`locksidecar_lock_held{key="reports/nightly"} 0`,
	} {
		wantLine(t, p, line)
	}
}

func TestAClockStepWarnsForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const raised, lowered = `locksidecar_warnings{check="clock_step"} 1`, `locksidecar_warnings{check="clock_step"} 0`
		m := New(quiet())
		wantLine(t, page(t, m), lowered)
		m.ClockStep(3 * time.Second)
		wantLine(t, page(t, m), raised)
		time.Sleep(time.Hour - time.Nanosecond)
		wantLine(t, page(t, m), raised)
		time.Sleep(time.Nanosecond)
		wantLine(t, page(t, m), lowered)
	})
}

func TestAClockStepSeenByTheStoresOwnCheckIsOneSeries(t *testing.T) {
	c := quiet()
	c.Warnings = func() map[string]bool { return map[string]bool{CheckClockStep: true} }
	wantLine(t, page(t, New(c)), `locksidecar_warnings{check="clock_step"} 1`)
}

func TestAMetricThatFailsIsLoggedAndSparesTheRest(t *testing.T) {
	var log strings.Builder
	c := quiet()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	m := New(c)
	broken := describe("broken", "Always fails.")
	m.registry.MustRegister(collectorFunc(func(metrics chan<- prometheus.Metric) {
		metrics <- prometheus.NewInvalidMetric(broken, errors.New("out of order"))
	}))

	wantLine(t, page(t, m), "locksidecar_orphans_total 0")
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "out of order") {
		t.Errorf("the log does not tell of the failure: %q", log.String())
	}
}

// collectorFunc is a collector that does not say in advance what it collects.
type collectorFunc func(chan<- prometheus.Metric)

func (collectorFunc) Describe(chan<- *prometheus.Desc)           {}
func (f collectorFunc) Collect(metrics chan<- prometheus.Metric) { f(metrics) }

func TestTheScopeIsEqualForEqualLocksOnly(t *testing.T) {
	base := Scope("lock:", "0", "a:6379")
	if again := Scope("lock:", "0", "a:6379"); again != base {
		t.Errorf("the same scope hashes to %s and %s", base, again)
	}
	for _, other := range []string{
		Scope("lock:", "1", "a:6379"),
		Scope("lock:", "0", "b:6379"),
		Scope("", "0", "a:6379"),
		Scope("lock: 0", "", "a:6379"),
		Scope(`lock:" "0`, "", "a:6379"),
	} {
		if other == base {
			t.Errorf("two different scopes hash to %s", base)
		}
	}
	if len(base) != 12 {
		t.Errorf("the scope %q is not 12 digits", base)
	}
}
