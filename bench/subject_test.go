package main

import (
	"context"
	"testing"
	"time"
)

// TestEverySubjectTakesAndReleasesItsLock also shows that a lock that is held
// counts as an error, or rates would count refusals.
func TestEverySubjectTakesAndReleasesItsLock(t *testing.T) {
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
	subjects, err := l.openSubjects(ctx, store.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer stopAll(subjects)

	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			clients, err := s.openClients(ctx, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(clients)
			for range 2 {
				if err := clients[0].Acquire(ctx, "k"); err != nil {
					t.Fatal(err)
				}
				if err := clients[1].Acquire(ctx, "k"); err == nil {
					t.Fatal("two workers hold the lock")
				}
				if err := clients[0].Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
