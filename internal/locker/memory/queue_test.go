package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// join asks for the key as the only caller of a process.
func (c *clocks) join(t *testing.T, b *memory.Backend, key locker.Key, process string) {
	t.Helper()
	_, err := b.AcquireInLine(t.Context(), c.claim(key), locker.Turn{Process: process, Call: 1, WaitLeft: time.Minute})
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Standing == nil {
		t.Fatalf("%s joins: %v, want a standing", process, err)
	}
}

func TestLinesOfTheDeadAreForgotten(t *testing.T) {
	b, c := newBackend()
	most := 0
	for i := range 20_000 {
		key := locker.Key(fmt.Sprint("k", i))
		b.Put(key, "stranger", time.Second)
		c.join(t, b, key, "process")
		c.now = c.now.Add(time.Second) // a line is remembered for some 12 s
		most = max(most, b.Lines())
	}
	if limit := 150; most > limit {
		t.Errorf("the table grew to %d lines, want at most %d", most, limit)
	}
}

func TestNumbersGoOnWhileTheyCanBeRemembered(t *testing.T) {
	b, c := newBackend()
	b.Put("k", "stranger", time.Hour)
	c.join(t, b, "k", "one")
	if err := b.Leave(t.Context(), "k", locker.Turn{Process: "one", Number: 1, Call: 2}); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(10 * time.Second)
	_, err := b.AcquireInLine(t.Context(), c.claim("k"), locker.Turn{Process: "two", Call: 1, WaitLeft: time.Minute})
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Standing.Number != 2 {
		t.Errorf("%v, want number 2", err)
	}
}

func TestListenCallsNobodyAfterItHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{Now: lockertest.BubbleClock})
		b.Put("k", "stranger", time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex // as a Locker's
		var heard []locker.HintKind
		var listening sync.WaitGroup
		listening.Go(func() {
			b.Listen(ctx, "one", func(h locker.Hint) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, h.Kind)
			})
		})
		synctest.Wait()

		c := &clocks{now: lockertest.BubbleClock()}
		c.join(t, b, "k", "one")
		time.Sleep(time.Second)
		mu.Lock() // the backend waits for no listener
		if _, err := b.Acquire(t.Context(), c.claim("k")); err == nil {
			t.Error("overtaken")
		}
		mu.Unlock()
		synctest.Wait()
		cancel()
		listening.Wait()
		if len(heard) != 2 || heard[0] != locker.HintListening || heard[1] != locker.HintWake {
			t.Errorf("heard %v, want that it listens, then a waking", heard)
		}
		if _, err := b.Acquire(t.Context(), c.claim("k")); err == nil {
			t.Error("the place is dropped though it was woken a moment ago")
		}
		time.Sleep(locker.DeadAfter + 1)
		claim := c.claim("k")
		if _, err := b.Acquire(t.Context(), claim); err != nil {
			t.Errorf("a place that was woken and says nothing is in the way: %v", err)
		}
		c.join(t, b, "k", "one")
		b.Release(t.Context(), []locker.Surrender{{Key: "k", Token: claim.Token}})
		if _, err := b.Acquire(t.Context(), c.claim("k")); err != nil {
			t.Errorf("the place of who listens no more is in the way: %v", err)
		}
	})
}
