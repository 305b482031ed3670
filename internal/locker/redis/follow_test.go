package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// followed returns a channel that is told of each change.
func followed(t *testing.T, b *Backend) <-chan struct{} {
	t.Helper()
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 16)
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	t.Cleanup(func() { stop(); following.Wait() })
	following.Go(func() { b.Follow(ctx, func() { changes <- struct{}{} }) })
	return changes
}

func wantChange(t *testing.T, what string, changes <-chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Errorf("%s is not told", what)
	}
}

func TestAnotherServerThatDecidesIsTold(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	changes := followed(t, openSentinel(t, s, Config{}))
	s.Failover()
	wantChange(t, "another master", changes)

	c := redistest.ClusterConfig{}.StartCluster(t)
	b := openCluster(t, c, Config{})
	changes = followed(t, b)
	name := b.keys.lock(testKey)
	from := c.MasterOf(name)
	for _, other := range c.Nodes[:3] {
		if other != from {
			c.Move(name, other) // to one that has slots already
			break
		}
	}
	mustAcquire(t, b, claimFor(testKey)) // by which that is learned
	select {
	case <-changes:
		t.Error("a slot that has moved, with its locks, is told of")
	default:
	}
	c.Failover(name)
	eventually(t, "a request meets the next one", func() bool { _, err := b.Inspect(t.Context(), testKey); return err == nil })
	wantChange(t, "another node", changes)

	lone := open(t, redistest.Start(t), Config{})
	lone.Follow(t.Context(), func() {}) // returns
}
