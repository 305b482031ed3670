package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is one line of the result.
type row struct {
	What    string `json:"what"`
	Subject string `json:"subject"`
	Result  string `json:"result"`
	VsBare  string `json:"vs_bare_handler,omitempty"` // ratios, where they make sense
	VsRaw   string `json:"vs_raw,omitempty"`
	Goal    string `json:"goal,omitempty"` // empty if none is set
	Missed  bool   `json:"missed,omitempty"`
}

// writeTable writes rows as a Markdown table whose columns are aligned for
// those who read it as text.
func writeTable(w io.Writer, rows []row) error {
	lines := [][]string{{"what", "subject", "result", "× bare handler", "× raw go-redis", "goal", ""}}
	last := ""
	for _, r := range rows {
		what := r.What
		if what == last {
			what = ""
		}
		last = r.What
		verdict := ""
		switch {
		case r.Missed:
			verdict = "missed"
		case r.Goal != "":
			verdict = "met"
		}
		lines = append(lines, []string{what, r.Subject, r.Result, r.VsBare, r.VsRaw, r.Goal, verdict})
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

// fineMillis is millis for times around one.
func fineMillis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }

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
