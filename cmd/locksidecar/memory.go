package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapFloor is what the heap may grow to before it is collected, however
	// little of it is live; goFloor is the same in Go itself.
	heapFloor = 12 << 20
	goFloor   = 4 << 20

	trimEvery = 5 * time.Second
	// A process that allocates less than this between two looks is quiet. The
	// renewals of ten thousand locks stay below it.
	quietBytes = 4 << 20
	// Less than this, and less than a quarter of what is live, is not worth a
	// collection.
	leastGain = 2 << 20
)

// trimMemory paces the collections, and gives the memory that a burst of
// requests has left behind back to the system once it is quiet, until ctx is
// over. Go itself collects a quiet heap every two minutes only and keeps as much
// again as is in use, and a cluster's sidecars are many.
func trimMemory(ctx context.Context) {
	paceCollections(ctx)
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"}, // as of the last collection
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, // empty and not given back
	}
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	var before uint64
	started := true // and nothing of that was given back yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(samples)
		allocated, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
		used, free := samples[2].Value.Uint64(), samples[3].Value.Uint64()
		if quiet := allocated-before < quietBytes; quiet && (started || used+free > live+max(leastGain, live/4)) {
			debug.FreeOSMemory()
			forgetProgram()
			started = false
		}
		before = allocated
	}
}

// paceCollections has the heap collected once it has grown to heapFloor, and
// where more than half of that is live, to twice what is live: Go's own pace.
// Requests leave far more behind than is live, so that at Go's own pace many of
// them a second cost a collection every 30 ms. It goes on until ctx is over, by
// itself, and leaves it to an operator who has set GOGC.
func paceCollections(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		(&pacer{ctx: ctx}).pace()
	}
}

// pacer sets the pace anew after every collection. What it sets is reckoned
// from what is live, so it must not outlast a burst.
type pacer struct {
	ctx     context.Context
	percent int
}

func (p *pacer) pace() {
	if p.ctx.Err() != nil {
		debug.SetGCPercent(100)
		return
	}
	if percent := gcPercent(); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	// The next collection finds this unreachable.
	runtime.AddCleanup(&struct{ self *pacer }{}, (*pacer).pace, p)
}

// gcPercent returns the value of GOGC at which the next collection comes at
// heapFloor, but at least 100.
func gcPercent() int {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, // these three are as of the last collection
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	live, stacks, globals := int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64()), int64(samples[2].Value.Uint64())
	// Go lets the heap grow by that part of all that a collection has to look
	// at, but in any case to that part of its own floor.
	percent := min(100*(heapFloor-live)/max(live+stacks+globals, 1), 100*heapFloor/goFloor)
	return int(max(percent, 100))
}
