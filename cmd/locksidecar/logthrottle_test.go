package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFloodOfEqualLinesIsThrottledAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, _ := NewLogger(&out, LogText, slog.LevelDebug)
		for range 1000 {
			log.Warn("request failed", "code", "store_unavailable")
		}
		log.Info("another")
		synctest.Wait()
		if n := strings.Count(out.String(), "request failed"); n != throttleMost {
			t.Errorf("%d lines, want %d", n, throttleMost)
		}
		if !strings.Contains(out.String(), "another") {
			t.Error("a line of another text was left out")
		}
		time.Sleep(throttleWindow)
		log.With("key", "k").Warn("request failed")
		synctest.Wait()
		if !strings.Contains(out.String(), "key=k left_out_before=990") {
			t.Errorf("the next line does not tell how many were left out:\n%s", &out)
		}
	})
}

func TestNoErrorIsLeftOut(t *testing.T) {
	var out bytes.Buffer
	logged(&out, LogJSON, slog.LevelInfo, func(log *slog.Logger) {
		for range 1000 {
			log.Error("lock lost")
		}
	})
	if n := strings.Count(out.String(), "lock lost"); n != 1000 {
		t.Errorf("%d of 1000 losses told", n)
	}
}
