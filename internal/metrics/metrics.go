// Package metrics tells Prometheus what the process does: by observing the
// table of locks, by wrapping the backend, and by counting at the scrape. It
// changes no outcome, and no key, owner or token reaches a label, except the
// keys that the settings name.
//
// Every series exists from the start, at 0, so that rates and alerts work on
// the very first event; the number of series never changes afterwards.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const namespace = "locksidecar"

// MaxKeys is how many keys may have a series of their own. The settings
// refuse more: a label value per lock is what takes a Prometheus down.
const MaxKeys = 50

// Config is what the metrics are made of. The functions are called at every
// scrape and from any goroutine; none may be nil.
type Config struct {
	Version, Commit, GoVersion string

	Mode  string // kind of backend, as configured
	Scope string // see Scope

	MetricKeys []locker.Key // these, at most MaxKeys, are shown by name

	Stats   func() locker.Stats
	HeldKey func(locker.Key) bool
	StoreUp func() bool // the last we heard of the store was an answer

	// NodesUp returns the same of each server of a quorum, by name. The names
	// must be the same at every call; there are none without a quorum.
	NodesUp func() map[string]bool

	// Warnings returns every check that there is, and whether it warns now.
	// The checks must be the same at every call.
	Warnings func() map[string]bool

	Log *slog.Logger // failures to serve the page
}

// Metrics counts what happens. It is an Observer of the table of locks.
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger

	acquires, lost, releases, renewals *prometheus.CounterVec

	acquireWait        *prometheus.HistogramVec
	hold, renewalSlack prometheus.Histogram

	handover                prometheus.Histogram
	wakeups, polls, orphans prometheus.Counter

	storeDuration  *prometheus.HistogramVec
	storeDurations map[storeCall]prometheus.Observer // the series of storeDuration
	storeErrors    *prometheus.CounterVec

	clockStep stickyWarning
}

// New returns metrics in a registry of their own.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		log:      c.Log,

		acquires: counters("acquires_total", "Requests for a lock, by how they ended.", "result"),
		lost:     counters("locks_lost_total", "Grants that ended before they were given back, by cause.", "cause"),
		releases: counters("releases_total", "Locks given back, by how it went.", "result"),
		renewals: counters("renewals_total", "Renewals and verifications of held locks, one per lock and attempt, by outcome.", "result"),

		acquireWait: histograms("acquire_wait_seconds", "Time from the request for a lock to its grant, or to the end of the wait in vain.", waitBuckets, "result"),
		hold:        histogram("hold_seconds", "Time from a grant to its release or loss.", holdBuckets),
		renewalSlack: histogram("renewal_slack_seconds",
			"Validity that was left when a renewal succeeded; near 0, locks are about to be lost.", slackBuckets),

		handover: histogram("handover_seconds", "Time from the wake-up of a waiter, or the release that it waited for in this sidecar, to its grant.", handoverBuckets),
		wakeups:  counter("wakeups_total", "Wake-ups received for waiters."),
		polls:    counter("polls_total", "Calls to the store made for waiters without a wake-up."),
		orphans:  counter("orphans_total", "Times that a value without expiry, or with one longer than anybody may ask for, was met at a lock's key."),

		storeDuration: histograms("store_request_duration_seconds", "Time that calls to the store took; a batch is one call.",
			storeBuckets, "op", "outcome"),
		storeErrors: counters("store_errors_total", "Calls to the store that got neither a yes nor a no, by reason.", "reason"),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		constant("build_info", "The version that is running.",
			prometheus.Labels{"version": c.Version, "commit": c.Commit, "goversion": c.GoVersion}),
		constant("config_info", "Which locks these are: sidecars with the same scope exclude each other.",
			prometheus.Labels{"mode": c.Mode, "scope": c.Scope}),
		newScrape(c, &m.clockStep),
		m.acquires, m.lost, m.releases, m.renewals,
		m.acquireWait, m.hold, m.renewalSlack,
		m.handover, m.wakeups, m.polls, m.orphans,
		m.storeDuration, m.storeErrors,
	)
	m.createSeries()
	return m
}

// Handler serves the metrics page. It is not compressed: the compressor's
// buffers would outweigh everything else that the sidecar keeps in memory.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		DisableCompression:  true,
		MaxRequestsInFlight: 4,
	})
}

// createSeries makes every label value exist.
func (m *Metrics) createSeries() {
	createAll(m.acquires, locker.AcquireResults)
	createAll(m.lost, locker.Causes)
	createAll(m.releases, locker.ReleaseResults)
	createAll(m.renewals, locker.RenewResults)
	createAll(m.storeErrors, locker.StoreReasons)
	for _, result := range timedResults {
		m.acquireWait.WithLabelValues(string(result))
	}
	m.storeDurations = make(map[storeCall]prometheus.Observer)
	for _, op := range storeOps {
		for _, outcome := range storeOutcomes {
			m.storeDurations[storeCall{op, outcome}] = m.storeDuration.WithLabelValues(string(op), string(outcome))
		}
	}
}

func createAll[T ~string](vec *prometheus.CounterVec, values []T) {
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
}
