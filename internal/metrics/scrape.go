package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape counts at the moment of the scrape what others keep: nothing is
// copied and nothing can drift from the truth.
type scrape struct {
	Config
	clockStep *stickyWarning

	held, atRisk, oldest, waiters *prometheus.Desc
	lockHeld, storeUp, warnings   *prometheus.Desc
	nodeUp                        *prometheus.Desc
}

func newScrape(c Config, clockStep *stickyWarning) *scrape {
	// A key named twice would be a duplicate series, which fails the page.
	c.MetricKeys = slices.Compact(slices.Sorted(slices.Values(c.MetricKeys)))
	return &scrape{
		Config:    c,
		clockStep: clockStep,
		held:      describe("locks_held", "Locks held with a valid lease, at risk or not."),
		atRisk:    describe("locks_at_risk", "Locks held whose renewal is overdue."),
		oldest:    describe("oldest_lock_age_seconds", "How long the oldest grant has been held; 0 if none is."),
		waiters:   describe("waiters", "Requests that wait for a lock."),
		lockHeld:  describe("lock_held", "Whether this sidecar holds the lock, for the keys that the settings name.", "key"),
		storeUp:   describe("store_up", "Whether the last call to the store was answered."),
		nodeUp:    describe("store_node_up", "Whether the last sign of life that a server of the quorum was asked for came.", "node"),
		warnings:  describe("warnings", "Whether a check of the store's settings and clock warns.", "check"),
	}
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.held, s.atRisk, s.oldest, s.waiters, s.lockHeld, s.storeUp, s.nodeUp, s.warnings} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	stats := s.Stats()
	gauge(s.held, float64(stats.Held))
	gauge(s.atRisk, float64(stats.AtRisk))
	gauge(s.oldest, stats.OldestHeldFor.Seconds())
	gauge(s.waiters, float64(stats.Waiting))
	gauge(s.storeUp, oneIf(s.StoreUp()))
	for node, up := range s.NodesUp() {
		gauge(s.nodeUp, oneIf(up), node)
	}

	checks := s.Warnings()
	gauge(s.warnings, oneIf(checks[CheckClockStep] || s.clockStep.raised()), CheckClockStep)
	for check, warns := range checks {
		if check != CheckClockStep {
			gauge(s.warnings, oneIf(warns), check)
		}
	}
	for _, key := range s.MetricKeys {
		gauge(s.lockHeld, oneIf(s.HeldKey(key)), string(key))
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// CheckClockStep is the check that warns after a jump of the store's clock.
const CheckClockStep = "clock_step"

// warnFor is how long an event of a moment is shown as a warning.
const warnFor = time.Hour

// stickyWarning remembers when something last happened.
type stickyWarning struct{ last atomic.Pointer[time.Time] }

func (w *stickyWarning) raise() {
	now := time.Now()
	w.last.Store(&now)
}

func (w *stickyWarning) raised() bool {
	last := w.last.Load()
	return last != nil && time.Since(*last) < warnFor
}

var _ prometheus.Collector = (*scrape)(nil)
