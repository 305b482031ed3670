package main

import (
	"fmt"
	"io"
	"sync"
)

// teller tells people what exec does for the lock's sake, in that order. It holds
// up nobody who has something to tell: whoever reads it may have stopped reading,
// as a pager does, and the command must end in time all the same.
type teller struct {
	w   io.Writer
	key string

	mu      sync.Mutex
	lines   []string // that are not written yet
	writing bool     // somebody does
	writers sync.WaitGroup
}

func (t *teller) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("locksidecar exec: %s: %s\n", t.key, fmt.Sprintf(format, args...)))
	if !t.writing {
		t.writing = true
		t.writers.Go(t.write)
	}
}

func (t *teller) write() {
	for {
		t.mu.Lock()
		lines := t.lines
		t.lines = nil
		t.writing = len(lines) > 0
		t.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		for _, line := range lines {
			_, _ = io.WriteString(t.w, line)
		}
	}
}

// finish waits until all is written.
func (t *teller) finish() { t.writers.Wait() }
