package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// clocks are set by hand.
type clocks struct {
	now  locker.Instant
	wall time.Time
}

func newBackend() (*memory.Backend, *clocks) {
	c := &clocks{now: 1, wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return memory.New(memory.Config{
		Now:  func() locker.Instant { return c.now },
		Wall: func() time.Time { return c.wall },
	}), c
}

func (c *clocks) claim(key locker.Key) locker.Claim {
	return locker.Claim{
		Key: key, Token: locker.NewToken("pod"), Holder: "pod",
		Keep: time.Second, NotAfter: c.now.Add(time.Hour),
	}
}

func TestZeroConfigReadsTheMachinesClocks(t *testing.T) {
	b := memory.New(memory.Config{})
	before := time.Now().UnixMicro()
	grant, err := b.Acquire(t.Context(), locker.Claim{
		Key: "k", Token: locker.NewToken("pod"), Keep: time.Minute, NotAfter: locker.BootTime().Add(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	if grant.UnixMicro < before || int64(grant.Fence) < before {
		t.Errorf("clock %d and fence %d, want at least the microseconds before the call, %d", grant.UnixMicro, grant.Fence, before)
	}
}

func TestGrantIsForgottenFiveMinutesAfterItsEnd(t *testing.T) {
	ends := map[string]func(*memory.Backend, *clocks, locker.Claim){
		"expiry": func(_ *memory.Backend, c *clocks, claim locker.Claim) { c.now = c.now.Add(claim.Keep) },
		"release": func(b *memory.Backend, _ *clocks, claim locker.Claim) {
			b.Release(context.Background(), []locker.Surrender{{Key: claim.Key, Token: claim.Token}})
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b, c := newBackend()
			claim := c.claim("k")
			first, err := b.Acquire(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			end(b, c, claim)

			c.now = c.now.Add(5*time.Minute - 1)
			if _, err := b.Acquire(t.Context(), claim); !errors.Is(err, locker.ErrSpent) {
				t.Errorf("just before five minutes: %v, want ErrSpent", err)
			}
			c.now = c.now.Add(1)
			c.wall = c.wall.Add(5 * time.Minute)
			second, err := b.Acquire(t.Context(), claim)
			if err != nil {
				t.Fatalf("after five minutes: %v, want a grant", err)
			}
			if second.Fence <= first.Fence {
				t.Errorf("fence %d after %d, want it to rise", second.Fence, first.Fence)
			}
		})
	}
}

func TestFenceRisesThoughTheWallClockStepsBack(t *testing.T) {
	b, c := newBackend()
	var last locker.Fence
	for i := range 3 {
		claim := c.claim("k")
		grant, err := b.Acquire(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		if grant.Fence <= last {
			t.Fatalf("grant %d has fence %d after %d", i, grant.Fence, last)
		}
		last = grant.Fence
		b.Release(t.Context(), []locker.Surrender{{Key: "k", Token: claim.Token}})
		c.wall = c.wall.Add(-time.Hour)
	}
}

func TestImplausibleFenceIsRefusedAndTakesNothing(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, spoil := range map[string]func(*clocks, *locker.Claim){
		"wall clock beyond 2^53 microseconds": func(c *clocks, _ *locker.Claim) { c.wall = time.UnixMicro(int64(locker.MaxFence) + 1) },
		"floor beyond 2^53":                   func(_ *clocks, claim *locker.Claim) { claim.Floor = locker.MaxFence + 1 },
		"wall clock a year above the floor": func(c *clocks, claim *locker.Claim) {
			claim.Floor = locker.Fence(c.wall.UnixMicro())
			c.wall = c.wall.Add(year + time.Microsecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, c := newBackend()
			claim := c.claim("k")
			sane := c.wall
			spoil(c, &claim)
			_, err := b.Acquire(t.Context(), claim)
			var store *locker.StoreError
			if !errors.As(err, &store) || !store.Certain || store.Reason != locker.StoreFailed {
				t.Fatalf("got %v, want a certain StoreError", err)
			}
			c.wall = sane
			grant, err := b.Acquire(t.Context(), c.claim("k"))
			if err != nil {
				t.Fatalf("afterwards: %v, want the key to be free", err)
			}
			if want := locker.Fence(sane.UnixMicro()); grant.Fence != want {
				t.Errorf("afterwards: fence %d, want %d: the implausible one must not be learned", grant.Fence, want)
			}
		})
	}
}

func TestGreatestPlausibleFencesAreGranted(t *testing.T) {
	b, c := newBackend()
	claim := c.claim("a")
	claim.Floor = locker.Fence(c.wall.Add(-365 * 24 * time.Hour).UnixMicro())
	if _, err := b.Acquire(t.Context(), claim); err != nil {
		t.Errorf("wall clock a year above the floor: %v", err)
	}
	claim = c.claim("b")
	claim.Floor = locker.MaxFence
	if grant, err := b.Acquire(t.Context(), claim); err != nil || grant.Fence != locker.MaxFence {
		t.Errorf("floor 2^53-1: fence %d, %v", grant.Fence, err)
	}
}

func TestTableKeepsOnlyWhatIsWorthKeeping(t *testing.T) {
	b, c := newBackend()
	most := 0
	for i := range 100_000 {
		claim := c.claim(locker.Key(fmt.Sprint("k", i)))
		if _, err := b.Acquire(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		b.Release(t.Context(), []locker.Surrender{{Key: claim.Key, Token: claim.Token}})
		c.now = c.now.Add(time.Second) // 300 grants are remembered at a time
		most = max(most, b.Rows())
	}
	if limit := 2*300 + 150; most > limit {
		t.Errorf("the table grew to %d rows, want at most %d", most, limit)
	}
}

func TestLeastTTLIsOneMillisecond(t *testing.T) {
	b, c := newBackend()
	claim := c.claim("k")
	claim.Keep = time.Nanosecond
	if _, err := b.Acquire(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if _, ttl, _ := b.Value("k"); ttl != time.Millisecond {
		t.Errorf("TTL %v", ttl)
	}
}
