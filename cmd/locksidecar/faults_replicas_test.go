package main

import (
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestWithoutItsReplicasAServerGrantsNothingAndExtendsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Config{}.StartReplicated(t, 1)
	master, replica := r.Servers[0], r.Servers[1]
	p := on(t, master, "REDIS_MIN_REPLICAS=1")
	var h answer
	eventually(t, 10*time.Second, "it is granted", func() bool { // a replica that gets no processor has not acknowledged
		h = p.POST("k", "ttl=6s")
		return h.Is(201, "held")
	})
	if !strings.Contains(h.Body, `"acked_replicas":1`) {
		t.Errorf("the grant says %s", h.Body)
	}
	replica.Stop()
	refused := p.awaitRefusal("other", "not_replicated")
	wantInTime(t, refused, storeTimeout)
	if refused.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if master.Do("EXISTS", "lock:other") != int64(0) {
		t.Error("the lock that was refused is in Redis")
	}
	p.awaitState("k", 6*time.Second, 200, "at_risk")
	if status, text := p.Ready(); status != 503 || !strings.Contains(text, "not_replicated") {
		t.Errorf("readiness is %d %q", status, text)
	}
	replica.Cont()
	p.awaitState("k", 6*time.Second, 200, "held")
	eventually(t, 10*time.Second, "the other is granted", func() bool { return p.POST("other").Is(201, "held") })
	p.DELETE("other").Finally(t, 204, "")

	replica.Kill()
	lost := p.awaitLost("k", 6*time.Second+unevenness, locker.CauseExpired)
	if lost.JSON.Fence != h.JSON.Fence {
		t.Errorf("the loss is told of %d, want %d", lost.JSON.Fence, h.JSON.Fence)
	}
	p.awaitRefusal("k", "not_replicated")
	if p.Metric(`locksidecar_store_errors_total{reason="not_replicated"}`) == 0 {
		t.Error("the metric does not count what was not replicated")
	}
}
