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
	// Less than this, and less than a quarter of what is live, is not worth a
	// collection.
	leastGain = 2 << 20
)

// trimMemory gives the memory that a burst of requests has left behind back to
// the system once it is quiet, until ctx is over. Go itself collects a quiet
// heap every two minutes only and keeps as much again as is in use, and a
// cluster's sidecars are many.
func trimMemory(ctx context.Context) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"}, // as of the last collection
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, // empty and not given back
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
		allocated, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
		used, free := samples[2].Value.Uint64(), samples[3].Value.Uint64()
		if allocated-before < quietBytes && used+free > live+max(leastGain, live/4) {
			debug.FreeOSMemory()
		}
		before = allocated
	}
}
