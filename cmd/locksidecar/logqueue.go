package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// logQueueSize is how many bytes of lines wait to be written at most.
	logQueueSize = 2 << 20
	// logFlush is how long the end of the process waits for the last lines.
	logFlush = 500 * time.Millisecond
)

// logQueue writes lines to w in their order, and lets nobody who logs wait for
// it: w may be a pipe that is full because whoever should read it is stuck, and
// renewals and a shutdown must go on nevertheless. What there is no room for is
// left out and counted in the log.
type logQueue struct {
	w      io.Writer
	direct *slog.Logger // to w, of what was left out

	mu      sync.Mutex
	lines   [][]byte
	size    int           // of the lines, and of those that are being written
	leftOut int           // since it was last told
	idle    chan struct{} // closed once all is written; nil while nothing waits
}

// Write queues one line. It never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+len(line) > logQueueSize {
		q.leftOut++
		return len(line), nil
	}
	q.lines = append(q.lines, bytes.Clone(line)) // the caller will use its buffer again
	q.size += len(line)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.drain()
	}
	return len(line), nil
}

func (q *logQueue) drain() {
	for {
		lines, leftOut := q.take()
		if len(lines) == 0 && leftOut == 0 {
			return
		}
		for _, line := range lines {
			_, _ = q.w.Write(line) // there is no other place to tell of it
			q.mu.Lock()
			q.size -= len(line)
			q.mu.Unlock()
		}
		if leftOut > 0 {
			q.direct.Warn("lines of the log were left out: nobody read it", "lines", leftOut)
		}
	}
}

// take returns all that is to be written. If that is nothing, the queue is idle.
func (q *logQueue) take() (lines [][]byte, leftOut int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, leftOut = q.lines, q.leftOut
	q.lines, q.leftOut = nil, 0
	if len(lines) == 0 && leftOut == 0 {
		close(q.idle)
		q.idle = nil
	}
	return lines, leftOut
}

// flush waits until all lines are written, for at most that long.
func (q *logQueue) flush(most time.Duration) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(most):
	}
}
