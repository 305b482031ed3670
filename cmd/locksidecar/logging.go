package main

import (
	"io"
	"log/slog"
)

// LogFormat is how a line of the log is written.
type LogFormat string

const (
	LogJSON LogFormat = "json" // one JSON object, for collectors
	LogText LogFormat = "text" // key=value, for people
)

// NewLogger returns a logger that writes lines of at least the level to w, and
// the queue they wait in for that, which must be flushed at the end. A flood of
// equal lines is throttled, save for errors.
func NewLogger(w io.Writer, format LogFormat, level slog.Level) (*slog.Logger, *logQueue) {
	q := &logQueue{w: w, direct: slog.New(newLogHandler(w, format, level))}
	return slog.New(newThrottle(newLogHandler(q, format, level))), q
}

func newLogHandler(w io.Writer, format LogFormat, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationsWithUnit}
	if format == LogText {
		return slog.NewTextHandler(w, options)
	}
	return slog.NewJSONHandler(w, options)
}

// durationsWithUnit keeps JSON from showing durations as bare nanoseconds.
func durationsWithUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
