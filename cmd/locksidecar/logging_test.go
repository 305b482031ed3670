package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// logged has tell use a logger that writes to b, and returns once all is written.
func logged(b *bytes.Buffer, format LogFormat, level slog.Level, tell func(*slog.Logger)) {
	log, queue := NewLogger(b, format, level)
	tell(log)
	queue.flush(time.Minute)
}

func TestALogLineIsJSONOrText(t *testing.T) {
	var b bytes.Buffer
	logged(&b, LogJSON, slog.LevelInfo, func(log *slog.Logger) { log.Info("lock lost", "key", "a b") })
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["msg"] != "lock lost" || line["key"] != "a b" || line["level"] != "INFO" {
		t.Errorf("JSON line %s, error %v", &b, err)
	}
	b.Reset()
	logged(&b, LogText, slog.LevelInfo, func(log *slog.Logger) { log.Info("lock lost", "key", "a b") })
	if !strings.Contains(b.String(), `level=INFO msg="lock lost" key="a b"`) {
		t.Errorf("text line %s", &b)
	}
}

func TestADurationIsLoggedWithItsUnit(t *testing.T) {
	var b bytes.Buffer
	logged(&b, LogJSON, slog.LevelInfo, func(log *slog.Logger) { log.Info("lock lost", "held_for", 1209*time.Millisecond) })
	if !strings.Contains(b.String(), `"held_for":"1.209s"`) {
		t.Errorf("logged %s", &b)
	}
}

func TestLinesBelowTheLevelAreNotWritten(t *testing.T) {
	for _, format := range []LogFormat{LogJSON, LogText} {
		var b bytes.Buffer
		logged(&b, format, slog.LevelWarn, func(log *slog.Logger) {
			log.Info("quiet")
			log.Warn("loud")
		})
		if strings.Contains(b.String(), "quiet") || !strings.Contains(b.String(), "loud") {
			t.Errorf("%s at level warn: %s", format, &b)
		}
	}
}
