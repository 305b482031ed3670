package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// A kubelet whose patience with a pod is over leaves every container two
	// seconds between SIGTERM and SIGKILL; drop and guarded stay within them.
	shutdownBound = 1900 * time.Millisecond
	// afterGrace is what release has left once its grace is over.
	afterGrace = 500 * time.Millisecond
	// lastAnswers is for answers that are being written when the doors close.
	lastAnswers = 50 * time.Millisecond
)

// shutDown ends what is held as the settings say, with the doors open, then
// closes them. It returns what became of the locks. A further signal ends the
// process at once, with nothing more given back.
func (c *sidecar) shutDown(signals <-chan os.Signal) locker.Counts {
	bound := shutdownBound
	if c.settings.ShutdownMode == locker.ModeRelease {
		bound = c.settings.ShutdownGrace + afterGrace
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	done := make(chan locker.Counts, 1)
	go func() { done <- c.locks.Shutdown(ctx, c.settings.ShutdownMode, c.settings.ShutdownGrace) }()
	var counts locker.Counts
	select {
	case counts = <-done:
	case sig := <-signals:
		c.log.Warn("second signal: exiting at once; what is held ends by its TTL",
			"signal", sig.String(), "left_to_expire", c.locks.Stats().Held)
		code := exitFailure
		if number, ok := sig.(syscall.Signal); ok {
			code = 128 + int(number)
		}
		os.Exit(code)
	}
	c.closeDoors()
	return counts
}

// closeDoors lets answers that are being written get out, then cuts.
func (c *sidecar) closeDoors() {
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	_ = c.api.Shutdown(ctx)
	if c.admin != nil {
		_ = c.admin.Shutdown(ctx)
	}
}
