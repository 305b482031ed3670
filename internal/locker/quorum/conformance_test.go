package quorum_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
)

func TestAQuorumIsABackendInVirtualTime(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			lockertest.RunInBubble(t, func(t *testing.T) lockertest.Harness {
				h := ofMemories(t, n, memory.Config{Now: lockertest.BubbleClock}, lockertest.BubbleClock)
				h.Figures = figures.VirtualRedlock
				return h
			})
		})
	}
}

// On a busy machine two wake-ups can come at once and be told as one, which
// costs a waiter time and nothing else; the suite counts them.
func TestAQuorumIsABackendInRealTime(t *testing.T) {
	if os.Getenv("LOCKSIDECAR_QUORUM_REAL_TIME") == "" {
		t.Skip("the suite runs in virtual time; LOCKSIDECAR_QUORUM_REAL_TIME=1 runs it in real time too")
	}
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		return ofMemories(t, 3, memory.Config{}, locker.BootTime)
	})
}

// ofMemories returns a harness for a quorum of n memories.
func ofMemories(t *testing.T, n int, config memory.Config, now locker.Clock) lockertest.Harness {
	t.Helper()
	memories := make([]*memory.Backend, n)
	members := make([]quorum.Member, n)
	for i := range memories {
		memories[i] = memory.New(config)
		members[i] = quorum.Member{Name: fmt.Sprint("node ", i), Member: memories[i]}
	}
	b, err := quorum.New(quorum.Config{Members: members, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	each := func(do func(*memory.Backend)) {
		for _, m := range memories {
			do(m)
		}
	}
	return lockertest.Harness{
		Backend: settled{b},
		Now:     now,
		Splits:  true,
		CurrentValue: func(key locker.Key) (string, bool) {
			return majority(memories, func(m *memory.Backend) (string, bool) {
				value, _, ok := m.Value(key)
				return value, ok
			})
		},
		PTTL: func(key locker.Key) time.Duration {
			var ttls []time.Duration
			each(func(m *memory.Backend) {
				_, ttl, _ := m.Value(key)
				ttls = append(ttls, ttl)
			})
			slices.Sort(ttls)
			return ttls[n/2]
		},
		Put: func(key locker.Key, value string, ttl time.Duration) {
			each(func(m *memory.Backend) { m.Put(key, value, ttl) })
		},
		Delete: func(key locker.Key) { each(func(m *memory.Backend) { m.Delete(key) }) },
		Wipe:   func() { each(func(m *memory.Backend) { m.Wipe() }) },
		LineTTL: func(key locker.Key) (longest time.Duration) {
			each(func(m *memory.Backend) { longest = max(longest, m.LineTTL(key)) })
			return longest
		},
	}
}

// majority returns the value that most of the nodes have.
func majority[N any](nodes []N, value func(N) (string, bool)) (string, bool) {
	counts := make(map[string]int)
	for _, n := range nodes {
		if v, ok := value(n); ok {
			counts[v]++
		}
	}
	for v, count := range counts {
		if count > len(nodes)/2 {
			return v, true
		}
	}
	return "", false
}

// settled is a quorum whose calls return only when all members have answered, so
// that what a test finds there does not depend on the slowest.
type settled struct{ *quorum.Backend }

func (s settled) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	defer s.Settle()
	return s.Backend.Acquire(ctx, c)
}

func (s settled) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	defer s.Settle()
	return s.Backend.Renew(ctx, renewals)
}

func (s settled) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	defer s.Settle()
	return s.Backend.Release(ctx, surrenders)
}

func (s settled) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	defer s.Settle()
	return s.Backend.Annotate(ctx, key, token, note)
}

func (s settled) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	defer s.Settle()
	return s.Backend.AcquireInLine(ctx, c, t)
}

func (s settled) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	defer s.Settle()
	return s.Backend.Leave(ctx, key, t)
}

func (s settled) HandOver(ctx context.Context, give locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	defer s.Settle()
	return s.Backend.HandOver(ctx, give, c, t)
}
