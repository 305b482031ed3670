package redis

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// The benchmarks compare a verification sent by the driver alone with one sent
// through a pipeline: what the pipeline costs a lone caller, and what it saves
// many. Run them with -cpu 2 -bench . -run ^$.

func BenchmarkDirect(b *testing.B) {
	server := redistest.Start(b)
	client := goredis.NewClient(&goredis.Options{
		Network: "tcp", Addr: server.Addr(), Protocol: 2, MaxRetries: -1, PoolSize: 64,
		ContextTimeoutEnabled: true, DisableIdentity: true,
	})
	defer client.Close()
	run := func(ctx context.Context, c *call) error {
		return client.Do(ctx, words(c)...).Err()
	}
	if err := client.ScriptLoad(b.Context(), renewScript.source).Err(); err != nil {
		b.Fatal(err)
	}
	benchmarkCallers(b, run)
}

func BenchmarkPipeline(b *testing.B) {
	server := redistest.Start(b)
	backend := open(b, server, Config{Addrs: []Address{TCP(server.Addr())}})
	benchmarkCallers(b, only(backend).renew.do)
}

func benchmarkCallers(b *testing.B, run func(context.Context, *call) error) {
	for _, callers := range []int{1, 64} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						ctx, cancel := context.WithTimeout(b.Context(), time.Second)
						if err := run(ctx, verification()); err != nil {
							b.Error(err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
		})
	}
}

func verification() *call {
	return &call{
		script: renewScript,
		keys:   []string{"lock:k"},
		args: func(func(locker.Instant) string) []string {
			return []string{"lock:#grant:{", "300000", "ls1/pod/SOMETHING", "0", strconv.Itoa(maxMicros)}
		},
		id: "1",
	}
}

func words(c *call) []any {
	return c.command(context.Background(), false, func(locker.Instant) string { return "" }).Args()
}
