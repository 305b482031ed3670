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

// NewLogger returns a logger that writes lines of at least the level to w. A
// flood of equal lines is throttled, save for errors.
func NewLogger(w io.Writer, format LogFormat, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationsWithUnit}
	if format == LogText {
		return slog.New(newThrottle(slog.NewTextHandler(w, options)))
	}
	return slog.New(newThrottle(slog.NewJSONHandler(w, options)))
}

// durationsWithUnit keeps JSON from showing durations as bare nanoseconds.
func durationsWithUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
