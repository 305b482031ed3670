package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is one line of the result.
type row struct {
	what, subject, result string
	vsBare, vsRaw         string // ratios, where they make sense
	goal                  string // empty if none is set
	missed                bool
}

// writeTable writes rows as a Markdown table whose columns are aligned for
// those who read it as text.
func writeTable(w io.Writer, rows []row) error {
	lines := [][]string{{"what", "subject", "result", "× bare handler", "× raw go-redis", "goal", ""}}
	last := ""
	for _, r := range rows {
		what := r.what
		if what == last {
			what = ""
		}
		last = r.what
		verdict := ""
		switch {
		case r.missed:
			verdict = "missed"
		case r.goal != "":
			verdict = "met"
		}
		lines = append(lines, []string{what, r.subject, r.result, r.vsBare, r.vsRaw, r.goal, verdict})
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	dashes := make([]string, len(widths))
	for i, width := range widths {
		dashes[i] = strings.Repeat("-", width)
	}
	lines = append(lines[:1], append([][]string{dashes}, lines[1:]...)...)
	for _, line := range lines {
		for i, cell := range line {
			if _, err := fmt.Fprintf(w, "| %-*s ", widths[i], cell); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, "|"); err != nil {
			return err
		}
	}
	return nil
}

func micros(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }

func millis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// coreShare formats CPU time used over wall time as a share of one core.
func coreShare(used, over time.Duration) string { return fmt.Sprintf("%.2f %%", percentOf(used, over)) }

func percentOf(part, whole time.Duration) float64 { return 100 * part.Seconds() / whole.Seconds() }

// ratio formats a ratio; 0 stands for one that could not be formed.
func ratio(r float64) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r)
}
