package redis

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// lack is a permission that our user may be without, and what is off then.
type lack struct {
	what, off string
	unsafe    bool // what endangers locks does not show
}

var (
	lackInfo      = lack{"run INFO", "eviction, persistence, replicas, version and role are not checked", true}
	lackConfig    = lack{"run CONFIG GET", "whether snapshots alone are persisted, and min-replicas-to-write, are not checked", true}
	lackGuard     = lack{"run INFO, by which the restart guard tells what a server has lost", "no lock is granted", true}
	lackRole      = lack{"run ROLE", "that a server is no master shows only when it refuses to write", false}
	lackPublish   = lack{"publish on the channels of waiting processes", "they get their locks by polling alone", false}
	lackSubscribe = lack{"subscribe to the channels of waiting processes", "they get their locks by polling alone", false}
)

// lacks knows which permissions our user is without.
type lacks struct {
	log *slog.Logger

	mu  sync.Mutex
	now []lack
}

// denied takes in that a server has refused something, and warns of it once.
func (l *lacks) denied(this lack, a Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.now, this) {
		return
	}
	l.now = append(l.now, this)
	l.log.Warn("Redis does not let us "+this.what+": "+this.off, "addr", a.String())
}

// granted takes in that a server has not refused it.
func (l *lacks) granted(this lack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = slices.DeleteFunc(l.now, func(other lack) bool { return other == this })
}

func (l *lacks) has(this lack) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.now, this)
}

// warning tells of all of them at once.
func (l *lacks) warning() (w Warning, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.now) == 0 {
		return Warning{}, false
	}
	w.Check = CheckPermissions
	var texts []string
	for _, lack := range l.now {
		texts = append(texts, "Redis does not let us "+lack.what+": "+lack.off)
		w.Unsafe = w.Unsafe || lack.unsafe
	}
	slices.Sort(texts)
	w.Message = strings.Join(texts, "; ")
	return w, true
}
