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
	// Answers that are being written when the doors close have as long as the end
	// may still take, within these: an end that is soon must not wait for a caller
	// who does not read, and one that is late has to be written all the same.
	leastForAnswers = 50 * time.Millisecond
	mostForAnswers  = 500 * time.Millisecond
)

// shutDown ends what is held as the settings say, with the doors open, then
// closes them. It returns what became of the locks. A second signal, where
// bySignal says that one has begun this, ends the process at once, with nothing
// more given back. After POST /quit the first may be the kubelet's, which comes
// to every container of a pod that ends.
func (c *sidecar) shutDown(signals <-chan os.Signal, bySignal bool) locker.Counts {
	bound := shutdownBound
	if c.settings.ShutdownMode == locker.ModeRelease {
		bound = c.settings.ShutdownGrace + afterGrace
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	end := time.Now().Add(bound)
	done := make(chan locker.Counts, 1)
	go func() { done <- c.locks.Shutdown(ctx, c.settings.ShutdownMode, c.settings.ShutdownGrace) }()
	for {
		select {
		case counts := <-done:
			c.closeDoors(min(max(time.Until(end), leastForAnswers), mostForAnswers))
			return counts
		case sig := <-signals:
			if bySignal {
				c.exitAtOnce(sig)
			}
			bySignal = true
			c.log.Info("shutting down already: the next signal ends that at once", "signal", sig.String())
		}
	}
}

func (c *sidecar) exitAtOnce(sig os.Signal) {
	c.log.Warn("second signal: exiting at once; what is held ends by its TTL",
		"signal", sig.String(), "left_to_expire", c.locks.Stats().Held)
	code := exitFailure
	if number, ok := sig.(syscall.Signal); ok {
		code = 128 + int(number)
	}
	c.exit(code)
}

// closeDoors lets answers that are being written get out for at most that long,
// then cuts.
func (c *sidecar) closeDoors(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	_ = c.api.Shutdown(ctx)
	if c.admin != nil {
		_ = c.admin.Shutdown(ctx)
	}
}
