package figures

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run says of which run the figures are.
type Run struct {
	Commit, Redis, Go, Seed string
	Day                     time.Time
}

var (
	columns = []Column{Dev, Single, Replicated, Sentinel, Cluster, Redlock, Wire, Virtual, VirtualRedlock}
	checked = []Row{Sidecars, Seconds, Calls, Grants, Windows, Histories, Linearized, Undecided, Lies, LiesSeen, Violations, Allowed, Orphans}
	faults  = []Row{
		ServerKilled, ServerFrozen, ServerSlow, Wiped, Failover, SlotMoved, SidecarKilled, SidecarFrozen, SidecarEnded,
		ConnectionCut, TurnedAway, BlackHole, Refused, RequestLate, Repeated, ReplyLate, ReplyLost, ReplySpoilt,
	}
)

// Markdown returns the figures as they are shown. The error names what a run
// must have counted and has not.
func (t Totals) Markdown(of Run) (string, error) {
	for _, row := range slices.Concat(checked, faults, []Row{MutantsTried, MutantsCaught, RenewalLate, RenewalLateBusy}) {
		if len(t[row]) == 0 {
			return "", fmt.Errorf("nothing was counted of %q", row)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "One run of the product's tests with `make figures` on %s: commit %s, Redis %s, %s, seed %s of the soaks, histories and simulations.\n",
		of.Day.Format(time.DateOnly), of.Commit, of.Redis, of.Go, of.Seed)
	fmt.Fprintf(&b, "Of %d mistakes that `make mutants` puts into the code, the tests catch %d. Where nothing fails, no renewal of 300 locks with a TTL of 3 s came later than\n", t[MutantsTried][""], t[MutantsCaught][""])
	fmt.Fprintf(&b, "%s ms after its time; beside twice as many busy loops as processors, %s ms (the sidecar built with the race detector).\n\n",
		milliseconds(t[RenewalLate][""]), milliseconds(t[RenewalLateBusy][""]))
	t.table(&b, "checked", checked)
	b.WriteString("\n")
	t.table(&b, "faults", faults)
	return b.String(), nil
}

// table writes rows, in the columns that have anything in them.
func (t Totals) table(b *strings.Builder, title string, rows []Row) {
	used := slices.DeleteFunc(slices.Clone(columns), func(c Column) bool {
		return !slices.ContainsFunc(rows, func(r Row) bool { return t[r][c] != 0 })
	})
	fmt.Fprintf(b, "| %s |", title)
	for _, c := range used {
		fmt.Fprintf(b, " %s |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(used)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s |", r)
		for _, c := range used {
			cell := "–"
			if n, counted := t[r][c]; counted {
				cell = grouped(n)
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
}

func milliseconds(us int) string { return strconv.FormatFloat(float64(us)/1000, 'f', 1, 64) }

// grouped writes a number with a comma before every three digits.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
