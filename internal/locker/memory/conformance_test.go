package memory_test

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

func TestMemoryIsABackendInVirtualTime(t *testing.T) {
	lockertest.RunInBubble(t, func(*testing.T) lockertest.Harness {
		h := harness(memory.New(memory.Config{Now: lockertest.BubbleClock}), lockertest.BubbleClock)
		h.Figures = figures.Virtual
		return h
	})
}

func TestMemoryIsABackendInRealTime(t *testing.T) {
	lockertest.Run(t, func(*testing.T) lockertest.Harness {
		return harness(memory.New(memory.Config{}), locker.BootTime)
	})
}

func harness(b *memory.Backend, now locker.Clock) lockertest.Harness {
	return lockertest.Harness{
		Backend: b,
		Now:     now,
		CurrentValue: func(key locker.Key) (string, bool) {
			value, _, ok := b.Value(key)
			return value, ok
		},
		PTTL: func(key locker.Key) time.Duration {
			_, ttl, _ := b.Value(key)
			return ttl
		},
		Put:     b.Put,
		Delete:  b.Delete,
		Wipe:    b.Wipe,
		LineTTL: b.LineTTL,
	}
}
