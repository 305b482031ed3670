package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"time"
)

// result is a run, as it is kept for later.
type result struct {
	Date  string `json:"date"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Go    string `json:"go"`
	Redis string `json:"redis"`
	Quick bool   `json:"quick,omitempty"` // not for publishing

	Rows   []row   `json:"rows"`
	Points []point `json:"points,omitempty"`
}

// point is one measure that depends on the number of workers.
type point struct {
	Measure string  `json:"measure"`
	Unit    string  `json:"unit,omitempty"`
	Subject string  `json:"subject"`
	Workers int     `json:"workers"`
	Value   float64 `json:"value"`
}

func (l *lab) newResult() *result {
	return &result{
		Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Go: strings.TrimPrefix(runtime.Version(), "go"), Redis: l.redisVersion, Quick: l.quick,
	}
}

// point keeps a measure for the charts, unless there is none.
func (l *lab) point(measure, unit, subject string, workers int, value float64) {
	if !math.IsInf(value, 0) && !math.IsNaN(value) {
		l.points = append(l.points, point{measure, unit, subject, workers, value})
	}
}

// facts describes the run without naming the machine.
func (r *result) facts() string {
	kind := "full run"
	if r.Quick {
		kind = "quick run"
	}
	return fmt.Sprintf("%d cores (%s/%s), Go %s, Redis %s on loopback TCP without persistence, %s, %s",
		r.Cores, r.OS, r.Arch, r.Go, r.Redis, r.Date, kind)
}

// write writes the facts and the table.
func (r *result) write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", r.facts()); err != nil {
		return err
	}
	return writeTable(w, r.Rows)
}

func readResult(file string) (*result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func (r *result) save(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
