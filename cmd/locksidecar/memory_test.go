package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// awaitHeapGoal collects until what the heap may grow to before the next
// collection satisfies ok.
func awaitHeapGoal(t *testing.T, ok func(goal, roots int64) bool) {
	t.Helper()
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	var goal, roots int64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		runtime.GC()
		metrics.Read(samples)
		goal = int64(samples[0].Value.Uint64())
		roots = int64(samples[1].Value.Uint64() + samples[2].Value.Uint64())
		if ok(goal, roots) {
			return
		}
	}
	t.Errorf("the heap may grow to %d bytes; stacks and globals have %d", goal, roots)
}

func TestTheHeapMayGrowToItsFloorAndBeyondItAtGosOwnPace(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	ctx, cancel := context.WithCancel(t.Context())
	paceCollections(ctx)

	const tolerance = heapFloor / 8
	awaitHeapGoal(t, func(goal, _ int64) bool {
		return goal > heapFloor-tolerance && goal < heapFloor+tolerance
	})
	live := make([]byte, 2*heapFloor)
	awaitHeapGoal(t, func(goal, roots int64) bool {
		return goal > 4*heapFloor && goal < 5*heapFloor+roots
	})
	runtime.KeepAlive(live)
	awaitHeapGoal(t, func(goal, _ int64) bool { return goal < heapFloor+tolerance })

	cancel()
	awaitHeapGoal(t, func(goal, roots int64) bool { return goal < heapFloor-tolerance })
}

func TestAnOperatorsPaceOfCollectionsIsLeftAlone(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	defer debug.SetGCPercent(before)
	paceCollections(t.Context())
	runtime.GC()
	if percent := debug.SetGCPercent(50); percent != 50 {
		t.Errorf("GOGC is %d, want the operator's 50", percent)
	}
}
