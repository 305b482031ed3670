// Package journal is what the applications of a scenario write down, and the
// proof that no two of them had the lock at once.
package journal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What an application writes. It believes to hold a lock from Enter to the
// last line that it writes under the same fencing token; one that is killed
// writes no Exit, and then that line is a Beat.
const (
	Enter = "enter" // the lock was granted
	Beat  = "beat"  // at work under the lock
	Exit  = "exit"  // gave the lock back, or will not rely on it any more
	Lost  = "lost"  // was told, or found, that the lock is lost; no work after it

	Renewed = "renewed" // was told over its stream that the lock has been renewed

	Start = "start" // the process has begun
	Term  = "term"  // SIGTERM has arrived
	End   = "end"   // the last thing that the process does
)

// Event is one line. All nodes of a kind cluster are containers of one
// machine, so the times of all applications are of one clock.
type Event struct {
	At     time.Time
	Kind   string
	Key    string // "-" where there is none
	Fence  uint64 // 0 where there is none
	Worker string // one process, or one run of a script
}

// String is the line without its end.
func (e Event) String() string {
	return fmt.Sprintf("%d %s %s %d %s", e.At.UnixNano(), e.Kind, e.Key, e.Fence, e.Worker)
}

// Read reads lines to the end. A last line without its end is being written
// and is left out.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		e, err := parse(line)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
}

func parse(line string) (Event, error) {
	fields := strings.Fields(line)
	if len(fields) != 5 {
		return Event{}, fmt.Errorf("journal: %q has not five fields", line)
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("journal: time of %q: %w", line, err)
	}
	fence, err := strconv.ParseUint(fields[3], 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("journal: fencing token of %q: %w", line, err)
	}
	return Event{At: time.Unix(0, at), Kind: fields[1], Key: fields[2], Fence: fence, Worker: fields[4]}, nil
}

// ReadDir reads all files of a folder; the events are in the order of time.
func ReadDir(folder string) ([]Event, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return nil, err
	}
	var all []Event
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		events, err := Read(f)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all, nil
}

// Hold is one stretch in which a worker believed to have the lock.
type Hold struct {
	Key    string
	Fence  uint64
	Worker string
	From   time.Time
	To     time.Time // of the last line under this fencing token
	Ended  bool      // the worker itself wrote the end
}

func (h Hold) String() string {
	return fmt.Sprintf("%s had %s from %s to %s under %d", h.Worker, h.Key, clock(h.From), clock(h.To), h.Fence)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Holds collects them, in the order in which they began.
func Holds(events []Event) []Hold {
	type grant struct {
		key, worker string
		fence       uint64
	}
	var holds []Hold
	index := map[grant]int{}
	for _, e := range events {
		g := grant{e.Key, e.Worker, e.Fence}
		i, open := index[g]
		switch {
		case e.Kind == Enter:
			index[g] = len(holds)
			holds = append(holds, Hold{Key: e.Key, Fence: e.Fence, Worker: e.Worker, From: e.At, To: e.At})
		case open && (e.Kind == Beat || e.Kind == Exit || e.Kind == Lost):
			holds[i].To = e.At
			holds[i].Ended = e.Kind != Beat
		}
	}
	return holds
}

// Check says what is wrong: work under one lock by two at once, and fencing
// tokens that did not rise from grant to grant.
func Check(events []Event) []string {
	var wrong []string
	byKey := map[string][]Hold{}
	for _, h := range Holds(events) {
		for _, earlier := range byKey[h.Key] {
			if h.From.Before(earlier.To) {
				wrong = append(wrong, fmt.Sprintf("overlap of %s: %s, and %s", earlier.To.Sub(h.From).Round(time.Microsecond), earlier, h))
			}
			if h.Fence <= earlier.Fence {
				wrong = append(wrong, fmt.Sprintf("the fencing token did not rise: %s, then %s", earlier, h))
			}
		}
		byKey[h.Key] = append(byKey[h.Key], h)
	}
	return wrong
}

// Overlap is the longest time for which two had the lock at once.
func Overlap(events []Event) time.Duration {
	var longest time.Duration
	byKey := map[string][]Hold{}
	for _, h := range Holds(events) {
		for _, earlier := range byKey[h.Key] {
			to := earlier.To
			if h.To.Before(to) {
				to = h.To
			}
			longest = max(longest, to.Sub(h.From))
		}
		byKey[h.Key] = append(byKey[h.Key], h)
	}
	return longest
}

// Fenced replays the work as writes to a resource that refuses every fencing
// token below the highest that it has seen, and counts what it took and refused.
func Fenced(events []Event) (taken, refused int) {
	highest := map[string]uint64{}
	for _, e := range events {
		if e.Kind != Enter && e.Kind != Beat {
			continue
		}
		if e.Fence < highest[e.Key] {
			refused++
			continue
		}
		highest[e.Key] = e.Fence
		taken++
	}
	return taken, refused
}
