package main

import (
	"context"
	"testing"
	"time"
)

func TestEveryWaitingSubjectWaitsForItsTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := newLab(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	store, err := l.startRedis(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer store.stop()
	subjects, err := l.openWaiting(ctx, store.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer stopAll(subjects)

	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if want := s.name == nameSidecar; (len(s.sidecars) == instances) != want {
				t.Errorf("%d sidecars", len(s.sidecars))
			}
			// compete fails if two have the lock at a time, or nobody has.
			c := contest{during: 2500 * time.Millisecond, hold: time.Millisecond, polite: true}
			watch := watchUse(ctx, store, s.sidecars)
			stints, err := c.competeAmong(ctx, s, instances, "k", watch.look)
			if err != nil {
				t.Fatal(err)
			}
			if len(handOvers(stints)) == 0 {
				t.Errorf("nobody handed over, in %d stints", len(stints))
			}
			if watch.used.commands < int64(2*len(stints)) {
				t.Errorf("%d commands for %d stints", watch.used.commands, len(stints))
			}
		})
	}
}
