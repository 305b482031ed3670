package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// Callers go on through one failover after the other, and all that they ever see
// are answers that are documented.
func TestFailoversUnderLoadCostOnlyRefusalsThatAreDocumented(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{}.StartSentinel(t)
	env := []string{"REDIS_MODE=sentinel", "SENTINEL_MASTER=" + s.Name, "REDIS_ADDRS=" + strings.Join(s.Addrs(), ","), "REDIS_MIN_REPLICAS=1"}
	pods := []*proc{startSidecar(t, env...), startSidecar(t, env...)}
	for _, p := range pods {
		p.awaitReady()
	}
	documented := []string{"201", "204", "409 held", "409 queued", "410 lost", "404 not_held",
		"503 store_unavailable", "503 store_error", "503 store_write_refused", "503 not_replicated", "503 acquire_unresolved", "503 release_unconfirmed"}
	var mu sync.Mutex
	seen := make(map[string]int)
	take := func(a answer) answer {
		mu.Lock()
		defer mu.Unlock()
		seen[strings.TrimSpace(fmt.Sprint(a.Status, " ", a.JSON.Code))]++
		return a
	}
	stop := make(chan struct{})
	var working sync.WaitGroup
	for i, p := range slices.Concat(pods, pods) {
		working.Go(func() {
			key := fmt.Sprint("k", i/2) // each has a rival on the other pod
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if a := take(p.POST(key, "ttl=5s", fmt.Sprint("owner=w", i, "-", n))); a.Status == 201 {
					take(p.giveBack(key, a))
				}
			}
		})
	}
	for range 2 {
		next := s.Failover()
		s.AwaitReplicas(next, len(s.Servers)-1)
		before := func() int { mu.Lock(); defer mu.Unlock(); return seen["201"] }()
		eventually(t, 20*time.Second, "locks are granted again", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen["201"] > before+4
		})
	}
	close(stop)
	working.Wait()
	t.Logf("%v", seen)
	for what := range seen {
		if !slices.Contains(documented, what) {
			t.Errorf("%d answers were %s", seen[what], what)
		}
	}
	for _, p := range pods {
		if p.Exited() {
			t.Errorf("a sidecar has ended with code %d", p.ExitCode())
		}
	}
}

// After a failover nobody is shut out who was not before.
func TestAfterAFailoverInAClusterBothGoOnAlternating(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{}.StartCluster(t)
	pods := []*proc{onCluster(t, c, "REDIS_MIN_REPLICAS=1"), onCluster(t, c, "REDIS_MIN_REPLICAS=1")}
	var last answer
	alternate := func(rounds int) {
		t.Helper()
		for n := range rounds {
			p := pods[n%2]
			var granted answer
			eventually(t, 20*time.Second, "its turn comes", func() bool {
				granted = p.POST("k")
				return granted.Status == 201
			})
			wantFenceAbove(t, granted, last)
			last = granted
			p.giveBack("k", granted).Finally(t, 204, "")
		}
	}
	alternate(4)
	c.Failover("lock:k")
	alternate(20)
}

func TestAServerOfAnotherKindIsToldAndNobodyEnds(t *testing.T) {
	t.Parallel()
	lone, trio := redistest.Start(t), redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	cluster := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	for name, c := range map[string]struct {
		mode, addr, found string
	}{
		"single at a Sentinel":      {"single", trio.Sentinels[0].Addr(), "such as a Sentinel"},
		"single at a cluster":       {"single", cluster.Nodes[0].Addr(), "a node of a Redis Cluster"},
		"Sentinel at a server":      {"sentinel", lone.Addr(), "such as a Redis server"},
		"cluster at a lone server":  {"cluster", lone.Addr(), "without cluster support"},
		"cluster at the Sentinels":  {"cluster", trio.Sentinels[0].Addr(), "such as a Sentinel"},
		"Sentinel at cluster nodes": {"sentinel", cluster.Nodes[0].Addr(), "such as a Redis server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"REDIS_MODE=" + c.mode, "REDIS_ADDRS=" + c.addr}
			if c.mode == "sentinel" {
				env = append(env, "SENTINEL_MASTER=mymaster")
			}
			p := startSidecar(t, env...)
			eventually(t, 20*time.Second, "readiness tells of "+c.found, func() bool { // once it has got an answer from there
				p.POST("k").Want(t, 503, "store_unavailable")
				status, text := p.Ready()
				return status == 503 && strings.Contains(text, c.found) && strings.Contains(text, "is expected") && strings.Contains(text, c.addr)
			})
			if p.Exited() {
				t.Error("the sidecar has ended")
			}
		})
	}
}
