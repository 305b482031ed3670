package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// metricsPage is a page in Prometheus' text format: the values by series.
type metricsPage map[string]float64

func (s *server) scrape(ctx context.Context) (metricsPage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: %s", resp.Status)
	}
	return parsePage(resp.Body)
}

func parsePage(r io.Reader) (metricsPage, error) {
	page := metricsPage{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 {
			return nil, fmt.Errorf("unreadable metric %q", line)
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("unreadable metric: %w", err)
		}
		page[line[:cut]] = value
	}
	return page, lines.Err()
}

// sum adds up the series of a metric that have the given labels (such as
// a="b"), whatever their other ones. A metric that is not on the page is an
// error: it must not pass for 0.
func (p metricsPage) sum(name string, labels ...string) (float64, error) {
	var (
		sum   float64
		found bool
	)
	for series, value := range p {
		metric, has, _ := strings.Cut(series, "{")
		if metric != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(has, l) }) {
			continue
		}
		sum += value
		found = true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s %s", name, labels)
	}
	return sum, nil
}

// liveHeap returns the bytes that the last garbage collection of a Go process
// found in use. The runtime sets the size at which the next one begins to that
// plus GOGC percent.
func (p metricsPage) liveHeap() (int64, error) {
	next, err := p.sum("go_memstats_next_gc_bytes")
	if err != nil {
		return 0, err
	}
	gogc, err := p.sum("go_gc_gogc_percent")
	if err != nil {
		return 0, err
	}
	return int64(next / (1 + gogc/100)), nil
}
