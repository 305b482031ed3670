package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	throttleWindow = time.Second
	throttleMost   = 10
)

// throttle lets at most throttleMost lines with the same text through in each
// throttleWindow, and tells with the next one how many were left out: while the
// store is down every request fails in the same way. Errors always pass, as
// each tells of a lock, and so does what was asked for by LOG_LEVEL=debug.
type throttle struct {
	slog.Handler
	seen *throttled // shared by all handlers that were derived from one
}

type throttled struct {
	mu      sync.Mutex
	windows map[string]*window // by text; texts are constants, so it stays small
}

type window struct {
	began time.Time
	lines int
}

func newThrottle(h slog.Handler) throttle {
	return throttle{h, &throttled{windows: make(map[string]*window)}}
}

func (t throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError || r.Level < slog.LevelInfo {
		return t.Handler.Handle(ctx, r)
	}
	passes, leftOut := t.seen.count(r.Message, r.Time)
	if !passes {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out_before", leftOut))
	}
	return t.Handler.Handle(ctx, r)
}

func (t throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	return throttle{t.Handler.WithAttrs(attrs), t.seen}
}

func (t throttle) WithGroup(name string) slog.Handler {
	return throttle{t.Handler.WithGroup(name), t.seen}
}

func (t *throttled) count(text string, at time.Time) (passes bool, leftOut int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.windows[text]
	if w == nil {
		w = &window{began: at}
		t.windows[text] = w
	}
	if at.Sub(w.began) >= throttleWindow {
		leftOut = max(0, w.lines-throttleMost)
		*w = window{began: at}
	}
	w.lines++
	return w.lines <= throttleMost, leftOut
}
