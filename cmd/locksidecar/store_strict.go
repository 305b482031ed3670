package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// errStopped is that a signal came before there was anything to end.
var errStopped = errors.New("told to stop before the store was found to be safe")

const (
	// askStrictly is how often a store that does not answer is asked whether it
	// is safe, before anything is granted.
	askStrictly = 500 * time.Millisecond

	// strictDirect is how long a command that needs no sidecar waits for that.
	strictDirect = 10 * time.Second
)

// demandSafe returns nil once the store has answered and none of its servers
// that did has anything that makes it unsafe. It waits for the store for as long
// as ctx lasts, and fails with all that is wrong.
func (s *store) demandSafe(ctx context.Context) error {
	ticker := time.NewTicker(askStrictly)
	defer ticker.Stop()
	told := false
	for {
		err := s.ping(ctx)
		if err == nil || recovering(err) {
			s.check(ctx)
			if s.checked() {
				return s.unsafe()
			}
		}
		if !told {
			told = true
			s.log.Warn("STRICT: no door opens before the store has answered and is found to be safe", "err", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("STRICT: the store could not be checked: %w", errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// checked tells whether enough servers have told about themselves.
func (s *store) checked() bool {
	n := 0
	for _, node := range s.nodes {
		if node.hasTold() {
			n++
		}
	}
	return 2*n > len(s.nodes) || len(s.nodes) == 0
}

// unsafe returns what makes the store unsafe, or nil.
func (s *store) unsafe() error {
	var all []string
	for _, n := range s.nodes {
		for _, w := range n.warned() {
			if w.Unsafe {
				all = append(all, n.about(w.Message, s.quorum != nil))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("STRICT: the store is not safe for locks: %s", strings.Join(all, "; "))
}

// awaitSafety is demandSafe that a signal ends too.
func (c *sidecar) awaitSafety(signals <-chan os.Signal) error {
	if !c.settings.Strict {
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- c.store.demandSafe(ctx) }()
	select {
	case err := <-done:
		return err
	case sig := <-signals:
		c.log.Info("shutting down", "signal", sig.String())
		cancel(errStopped)
		<-done
		return errStopped
	}
}
