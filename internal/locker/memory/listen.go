package memory

import (
	"context"
	"slices"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// listener is one call of Listen. Its fields are under the backend's mutex.
type listener struct {
	process string
	hints   []locker.Hint
	more    chan struct{} // has room for one; sent to when hints are added
}

// Listen implements [locker.Queue]. hear is called by Listen alone, in the
// order of the hints and without any lock, and never after Listen has
// returned.
func (b *Backend) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	l := &listener{process: process, more: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.listeners == nil {
		b.listeners = make(map[string][]*listener)
	}
	b.listeners[process] = append(b.listeners[process], l)
	l.add(locker.Hint{Kind: locker.HintListening})
	b.mu.Unlock()
	defer b.unlisten(l)

	for {
		select {
		case <-ctx.Done():
			return
		case <-l.more:
		}
		b.mu.Lock()
		hints := l.hints
		l.hints = nil
		b.mu.Unlock()
		for _, h := range hints {
			if ctx.Err() != nil {
				return
			}
			hear(h)
		}
	}
}

func (l *listener) add(h locker.Hint) {
	l.hints = append(l.hints, h)
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (b *Backend) unlisten(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.DeleteFunc(b.listeners[l.process], func(other *listener) bool { return other == l })
	b.listeners[l.process] = left
	if len(left) == 0 {
		delete(b.listeners, l.process)
	}
}

// tellLocked gives a hint to whoever listens for the process; it is false if
// nobody does.
func (b *Backend) tellLocked(process string, h locker.Hint) bool {
	for _, l := range b.listeners[process] {
		l.add(h)
	}
	return len(b.listeners[process]) > 0
}
