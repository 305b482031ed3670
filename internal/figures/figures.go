// Package figures counts what the tests have done and seen, for the tables of
// docs/guarantees.md. `make figures` runs the tests with LOCKSIDECAR_FIGURES
// naming a file, to which every test process appends its counts. Without that
// nothing is counted.
package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Variable is that of the environment that names the file.
const Variable = "LOCKSIDECAR_FIGURES"

// Row is what is counted, in the words of the table.
type Row string

// What was checked.
const (
	Sidecars   Row = "sidecars started"
	Seconds    Row = "seconds of virtual time"
	Calls      Row = "calls to the store"
	Grants     Row = "grants"
	Windows    Row = "times of holding, each compared with all others of its key"
	Histories  Row = "random sequences, compared with a reference model"
	Linearized Row = "histories of some 200 requests, checked for linearizability"
	Undecided  Row = "of these, given up undecided after 10 s"
	Lies       Row = "histories with one false grant put in"
	LiesSeen   Row = "of these, seen by the check"
	Violations Row = "**two valid holders, or a fencing token that did not rise**"
	Allowed    Row = "the same, where the test has the store lose locks, or has left out what prevents it"
	Orphans    Row = "**locks that nobody holds, left at the end** (looked for in virtual time)"
)

// What befell servers, sidecars and requests.
const (
	ServerKilled  Row = "a server is killed"
	ServerFrozen  Row = "a server is frozen"
	Failover      Row = "a master is replaced by its replica"
	SlotMoved     Row = "a slot is moved"
	Wiped         Row = "a server loses its data"
	ServerSlow    Row = "a server stands still for a while"
	SidecarKilled Row = "a sidecar is killed"
	SidecarFrozen Row = "a sidecar is frozen"
	SidecarEnded  Row = "a sidecar is told to end"

	ConnectionCut Row = "a connection is cut"
	TurnedAway    Row = "a new connection is turned away"
	BlackHole     Row = "a connection says nothing more"
	Refused       Row = "a request does not arrive"
	RequestLate   Row = "a request is held back"
	Repeated      Row = "a request is executed twice"
	ReplyLate     Row = "a reply is late"
	ReplyLost     Row = "a reply is lost"
	ReplySpoilt   Row = "a reply is garbled, cut or another's"
)

// Single numbers.
const (
	MutantsTried  Row = "mutants tried"
	MutantsCaught Row = "mutants caught"

	// In microseconds. The greatest counts, not the sum.
	RenewalLate     Row = "worst lateness of a renewal"
	RenewalLateBusy Row = "worst lateness of a renewal beside busy loops"
)

// Column is where it is counted.
type Column string

// Real processes, by REDIS_MODE; and virtual time.
const (
	Dev            Column = "dev"
	Single         Column = "single"
	Replicated     Column = "with replicas"
	Sentinel       Column = "sentinel"
	Cluster        Column = "cluster"
	Redlock        Column = "redlock"
	Wire           Column = "on the wire"
	Virtual        Column = "virtual time"
	VirtualRedlock Column = "virtual time, redlock"
)

// count is one line of the file.
type count struct {
	Row    Row    `json:"row"`
	Column Column `json:"column,omitempty"`
	N      int    `json:"n"`
}

// out is opened before any test looks at the files that this process has open.
var out = func() *os.File {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	return f
}()

// Wanted tells whether anything is counted.
func Wanted() bool { return out != nil }

// Count adds n to a figure. A figure of 0 is shown too.
func Count(row Row, column Column, n int) {
	if out == nil {
		return
	}
	line, err := json.Marshal(count{row, column, n})
	if err == nil {
		_, err = out.Write(append(line, '\n')) // one write: other processes append as well
	}
	if err != nil {
		panic(err)
	}
}

// Totals are the figures of a run.
type Totals map[Row]map[Column]int

// Read adds up what was counted.
func Read(r io.Reader) (Totals, error) {
	t := make(Totals)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var c count
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if t[c.Row] == nil {
			t[c.Row] = make(map[Column]int)
		}
		if c.Row == RenewalLate || c.Row == RenewalLateBusy {
			t[c.Row][c.Column] = max(t[c.Row][c.Column], c.N)
		} else {
			t[c.Row][c.Column] += c.N
		}
	}
	return t, lines.Err()
}
