package main

import (
	"log/slog"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/statedir"
)

// openState opens the state directory, if there is to be one, and reads what an
// earlier process has left in it.
func openState(s Settings, log *slog.Logger) (*statedir.Dir, locker.Saved, error) {
	if s.StateDir == "" {
		return nil, locker.Saved{}, nil
	}
	return statedir.Open(statedir.Config{
		Dir: string(s.StateDir), Scope: scope(s), StoreTimeout: s.StoreTimeout, Log: log,
	})
}

// journal is the state directory for the locker; nil if there is none.
func (c *sidecar) journal() locker.Journal {
	if c.state == nil {
		return nil // and not a nil *Dir
	}
	return c.state
}

// restore takes up what an earlier process has left. Without space to say so
// in the directory, it is taken up all the same.
func (c *sidecar) restore(saved locker.Saved) {
	if c.state == nil {
		return
	}
	r, err := c.locks.Restore(saved)
	if r != (locker.Restored{}) {
		c.log.Info("taken up from the state directory", "held", r.TakenUp, "held_untold", r.Doubted, "releasing", r.Releasing, "lost", r.Lost)
	}
	if err != nil {
		c.log.Error("the state directory still holds what the earlier process has left", "err", err)
	}
}

// stateProblem says in public words why no lock can be recorded; empty if it
// can.
func (c *sidecar) stateProblem() string {
	if c.state == nil {
		return ""
	}
	return c.state.Problem()
}

func (c *sidecar) closeState() {
	if c.state != nil {
		c.state.Close()
	}
}
