package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// record is what the processes of one test have told their callers. When the
// test ends it is checked against what must hold in every test:
//
//   - no two holders of a key were valid at a time by their own reports,
//   - a key's fencing tokens rise from grant to grant and none is used twice,
//   - no token and no password is in a log, an answer or a page,
//   - no process has met a data race or a panic.
//
// All processes of a test share one record, so they should share one store;
// keys of another store need names of their own.
type record struct {
	processes []*proc

	mu       sync.Mutex
	grants   map[grantName]*told
	seen     map[*proc][]string // texts that processes have handed out
	leaving  map[*proc]bool     // told to end: a grant of theirs is valid only as long as they say so
	lossy    map[string]bool    // keys whose value was taken from the store
	apart    map[string]bool    // those of them that stand for different locks
	problems []string
}

func newRecord() *record {
	return &record{grants: make(map[grantName]*told), seen: make(map[*proc][]string), leaving: make(map[*proc]bool), lossy: make(map[string]bool), apart: make(map[string]bool)}
}

type grantName struct {
	key   string
	fence locker.Fence
}

// told is what was told of one grant.
type told struct {
	by          *proc
	granted     bool           // by an answer that was seen
	asked       locker.Instant // then: when its request was sent
	from, until locker.Instant // it was told to be valid
	lastReport  locker.Instant
	over        locker.Instant // given back or told to be lost by then, or 0: no later request may tell it valid
}

var records sync.Map // testing.TB to *record

func recordOf(t testing.TB) *record {
	known, found := records.LoadOrStore(t, newRecord())
	r := known.(*record)
	if !found {
		t.Cleanup(func() {
			records.Delete(t)
			r.check(t)
		})
	}
	return r
}

// saw takes note of a text that a process has handed out.
func (r *record) saw(p *proc, what, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[p] = append(r.seen[p], what+": "+text)
}

// take takes note of an answer.
func (r *record) take(p *proc, method, path string, a answer) {
	var headers strings.Builder
	_ = a.Header.Write(&headers) // to memory
	r.saw(p, method+" "+path, headers.String()+a.Body)

	key, isLock := strings.CutPrefix(path, "/locks/")
	switch {
	case a.Status == http.StatusCreated || a.Status == http.StatusOK && isLock && method != http.MethodDelete:
		r.valid(p, key, method == http.MethodPost && a.Status == http.StatusCreated, a)
	case a.Status == http.StatusGone:
		r.lost(key, a)
	case isLock && method == http.MethodDelete && (a.Status == http.StatusNoContent || a.JSON.Code == "release_unconfirmed"):
		r.deleted(p, key, a)
	case method == http.MethodDelete && a.Status == http.StatusOK, path == "/quit":
		r.leaves(p, a.Sent)
	}
}

func (r *record) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *record) valid(p *proc, key string, granted bool, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := grantName{key, a.JSON.Fence}
	g := r.grants[name]
	if g == nil {
		g = &told{by: p, from: a.Got}
		r.grants[name] = g
	}
	if granted {
		if g.granted {
			r.problem("%s: fencing token %d was granted twice", key, name.fence)
		}
		g.granted, g.asked = true, a.Sent
	}
	if g.over != 0 {
		if a.Sent > g.over {
			r.problem("%s: grant %d was told to be valid after its end", key, name.fence)
		}
		return
	}
	g.from, g.lastReport = min(g.from, a.Got), max(g.lastReport, a.Sent)
	if r.leaving[p] {
		g.until = max(g.until, a.Sent)
	} else {
		g.until = max(g.until, locker.Instant(a.JSON.ValidUntilMS*1e6))
	}
}

// storeLost takes note that the test has taken the keys from the store, or has
// replaced what was there: until its next renewal the holder cannot know, so
// two may be told to be valid.
func (r *record) storeLost(keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		r.lossy[key] = true
	}
}

// standApart takes note that the key stands for different locks in this test.
func (r *record) standApart(key string) {
	r.storeLost(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apart[key] = true
}

// lost ends a grant where it was last told to be valid: how long it stayed so
// is not known to those who only read answers.
func (r *record) lost(key string, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.grants[grantName{key, a.JSON.Fence}]; g != nil {
		g.end(a.Got)
		g.until = min(g.until, g.lastReport)
	}
}

func (g *told) end(at locker.Instant) {
	if g.over == 0 {
		g.over = max(1, at)
	}
}

// succeeds says that a process has taken up what another one held that has
// ended: those who were told of it then may count on it now.
func (r *record) succeeds(p, ended *proc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.grants {
		if g.by == ended {
			g.by = p
		}
	}
}

// gaveUp ends the process's grant of a key at an instant.
func (r *record) gaveUp(p *proc, key string, at locker.Instant) {
	r.deleted(p, key, answer{Sent: at})
}

// deleted ends the process's grant of a key with a DELETE.
func (r *record) deleted(p *proc, key string, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, g := range r.grants {
		if g.meant(name, p, key, a) {
			g.end(max(a.Sent, a.Got))
			g.until = min(g.until, a.Sent)
		}
	}
}

// meant tells whether a request to give a key back was about the grant. Answers
// to such requests for successive grants may be seen in any order.
func (g *told) meant(name grantName, p *proc, key string, a answer) bool {
	return g.by == p && name.key == key && g.from <= a.Sent && (a.Handle == 0 || a.Handle == name.fence)
}

// mayHaveGivenUp takes in that a process was asked to give a lock back and has
// not answered: nobody counts on it until it is told to be valid again.
func (r *record) mayHaveGivenUp(p *proc, key string, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, g := range r.grants {
		if g.meant(name, p, key, a) {
			g.until = min(g.until, a.Sent)
		}
	}
}

// leaves frees the process from its promises, from an instant on.
func (r *record) leaves(p *proc, at locker.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving[p] = true
	for _, g := range r.grants {
		if g.by == p && g.over == 0 {
			g.until = min(g.until, at)
		}
	}
}

// randomPart is what every token ends with; see locker.NewToken.
var randomPart = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

func (r *record) check(t testing.TB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judge()
	r.count()
	for _, problem := range r.problems {
		t.Error(problem)
	}
	for _, p := range r.processes {
		texts := append(r.seen[p], "log: "+p.Log(), "output: "+p.Stdout())
		for _, text := range texts {
			what, _, _ := strings.Cut(text, ":")
			if randomPart.MatchString(text) {
				t.Errorf("a token is in: %s", what)
			}
			for _, secret := range p.secrets {
				if strings.Contains(text, secret) {
					t.Errorf("a password is in: %s", what)
				}
			}
		}
		for _, bad := range []string{"DATA RACE", "panic:", "panicked", "fatal error:"} {
			if strings.Contains(p.Log(), bad) {
				t.Errorf("%q is in the log:\n%s", bad, p.Log())
			}
		}
		if t.Failed() {
			t.Logf("log of process %d:\n%s", p.Pid(), randomPart.ReplaceAllString(p.Log(), "[token]"))
		}
	}
}

// count counts what was checked.
func (r *record) count() {
	for _, p := range r.processes {
		p.count(figures.Sidecars)
		figures.Count(figures.Violations, p.mode(), 0)
		figures.Count(figures.Allowed, p.mode(), 0)
	}
	for _, g := range r.grants {
		g.by.count(figures.Windows)
		if g.granted {
			g.by.count(figures.Grants)
		}
	}
	if len(r.problems) > 0 {
		figures.Count(figures.Violations, r.processes[0].mode(), len(r.problems))
	}
}

// overlapAllowed counts an overlap that the test explains. Where one of the two has
// been led to a server of several, it is the other that tells how they are run.
func (r *record) overlapAllowed(a, b *told) {
	mode := a.by.mode()
	if mode == figures.Single {
		mode = b.by.mode()
	}
	figures.Count(figures.Allowed, mode, 1)
}

// judge adds the problems that show only between grants.
func (r *record) judge() {
	byKey := make(map[string][]grantName)
	for name := range r.grants {
		byKey[name.key] = append(byKey[name.key], name)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		names := byKey[key]
		slices.SortFunc(names, func(a, b grantName) int { return cmp.Compare(a.fence, b.fence) })
		for i, later := range names {
			b := r.grants[later]
			for _, earlier := range names[:i] {
				a := r.grants[earlier]
				if a.granted && b.from < a.asked {
					r.problem("%s: grant %d was made after %d", key, earlier.fence, later.fence)
				}
				both := min(a.until, b.until).Sub(max(a.from, b.from))
				switch {
				case both <= 0:
				case r.apart[key]:
				case r.lossy[key]:
					r.overlapAllowed(a, b)
				default:
					r.problem("%s: grants %d and %d were both told to be valid for %v", key, earlier.fence, later.fence, both)
				}
			}
		}
	}
}

// finish takes a last look at the metrics and kills the process.
func (p *proc) finish() {
	if !p.Exited() {
		p.Cont()
		if res, err := p.visitor.Get(p.Admin + "/metrics"); p.Admin != "" && err == nil {
			var page strings.Builder
			_ = res.Write(&page) // to memory
			res.Body.Close()
			p.record.saw(p, "metrics", page.String())
		}
		p.end()
	}
	p.client.CloseIdleConnections()
	p.visitor.CloseIdleConnections()
}
