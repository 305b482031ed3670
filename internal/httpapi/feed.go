package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// A feed sends a snapshot when something has changed, but no more than four a
// second, and one every two seconds anyway. Making snapshots takes no more
// than a twentieth of the time, however many locks there are and however many
// people look.
const (
	feedLeast    = 250 * time.Millisecond
	feedMost     = 2 * time.Second
	feedFraction = 20
	feedsMost    = 16
)

// feeds are all feeds of the status page.
type feeds struct {
	ended chan struct{} // closed when the server shuts down
	end   func()

	mu   sync.Mutex
	open int

	making chan struct{} // has room for whoever makes a snapshot: one at a time
	asking chan struct{} // has room for whoever uses the following
	health Health
	asked  time.Time
}

func newFeeds() *feeds {
	f := &feeds{ended: make(chan struct{}), making: make(chan struct{}, 1), asking: make(chan struct{}, 1)}
	f.end = sync.OnceFunc(func() { close(f.ended) })
	return f
}

func (f *feeds) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == feedsMost {
		return false
	}
	f.open++
	return true
}

// count is how many feeds are open, as a factor.
func (f *feeds) count() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.open)
}

func (f *feeds) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

// recentHealth asks for the health if nobody has done so for a while. The
// answer is for all, so it is not asked in the name of one who may leave.
func (f *feeds) recentHealth(ctx context.Context, ask func(context.Context) Health) Health {
	f.asking <- struct{}{}
	defer func() { <-f.asking }()
	if f.asked.IsZero() || time.Since(f.asked) >= feedMost-feedLeast {
		f.health = ask(context.WithoutCancel(ctx))
		f.asked = time.Now()
	}
	return f.health
}

// feed answers with snapshots until the caller goes, does not read, or the
// server shuts down, which is the last event.
func (a *api) feed(w http.ResponseWriter, r *http.Request, q locker.Query) error {
	// A page of another origin cannot read it, but could use up all there are.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return refuse("cross_origin", "")
	}
	if !a.feeds.enter() {
		return refuse("too_many_feeds", "")
	}
	defer a.feeds.leave()
	w.Header().Set("Content-Type", typeEvents)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := feedWriter{w, http.NewResponseController(w).Flush}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed, text, took := a.look(r.Context(), q)
		if out.send("snapshot", text) != nil {
			return nil // it has gone
		}
		pause := max(feedLeast, feedFraction*took*a.feeds.count())
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil
		case <-a.feeds.ended:
			_ = out.send("end", []byte("{}"))
			return nil
		}
		timer.Reset(max(0, feedMost-pause))
		select {
		case <-changed:
		case <-timer.C:
		case <-r.Context().Done():
			return nil
		case <-a.feeds.ended:
			_ = out.send("end", []byte("{}"))
			return nil
		}
	}
}

// look makes a snapshot, and tells when to look again and how long it took.
func (a *api) look(ctx context.Context, q locker.Query) (changed <-chan struct{}, text []byte, took time.Duration) {
	health := a.feeds.recentHealth(ctx, a.Health)
	a.feeds.making <- struct{}{}
	defer func() { <-a.feeds.making }()
	began := time.Now()
	changed = a.Locks.Changes()
	text, _ = json.Marshal(a.snapshot(health, q)) // it holds nothing that cannot be written
	return changed, text, time.Since(began)
}

// feedWriter writes events to one caller, who has a while to take each.
type feedWriter struct {
	w     http.ResponseWriter
	flush func() error
}

func (f feedWriter) send(event string, data []byte) error {
	var text bytes.Buffer
	text.WriteString("event: " + event + "\ndata: ")
	text.Write(data) // one line: JSON has no line breaks of its own
	text.WriteString("\n\n")
	limitWrite(f.w)
	if _, err := f.w.Write(text.Bytes()); err != nil {
		return err
	}
	return f.flush()
}
