package metrics

import "github.com/prometheus/client_golang/prometheus"

// Buckets, in seconds. They reach from what a loopback Redis needs to the
// longest that the settings allow.
var (
	storeBuckets    = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .3}
	handoverBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	waitBuckets     = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
	holdBuckets     = []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600}
	slackBuckets    = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 300, 3600}
)

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{label})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// constant is a series that is always 1 and whose labels are the message.
func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
	g.Set(1)
	return g
}

// describe makes the description of a metric that is counted at the scrape.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
