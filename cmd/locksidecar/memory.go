package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	trimEvery = 5 * time.Second
	// A process that allocates less than this between two looks is quiet. The
	// renewals of ten thousand locks stay below it.
	quietBytes = 4 << 20
	// Garbage below this, and below a quarter of what is live, is not worth a
	// collection.
	leastGarbage = 1 << 20
)

// trimMemory gives the memory that a burst of requests has left behind back to
// the system once it is quiet, until ctx is over. Go itself collects a quiet
// heap every two minutes only, and a pod's sidecars are many.
func trimMemory(ctx context.Context) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"}, // as of the last collection
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	var before uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(samples)
		allocated, live, used := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
		if allocated-before < quietBytes && used > live+max(leastGarbage, live/4) {
			debug.FreeOSMemory()
		}
		before = allocated
	}
}
