package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// onCluster starts a sidecar that knows all nodes, and returns once it grants.
func onCluster(t *testing.T, c *redistest.Cluster, env ...string) *proc {
	t.Helper()
	p := startSidecar(t, append([]string{"REDIS_MODE=cluster", "REDIS_ADDRS=" + strings.Join(c.Addrs(), ",")}, env...)...)
	p.awaitReady()
	return p
}

// keyOn returns a key that the n-th master has.
func keyOn(c *redistest.Cluster, n int, prefix string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(prefix, i); c.MasterOf("lock:"+key) == c.Nodes[n] {
			return key
		}
	}
}

func TestASlotThatIsLostLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	for coverage, others := range map[string]bool{"no": true, "yes": false} { // the latter is Redis' default
		t.Run("full coverage "+coverage, func(t *testing.T) {
			t.Parallel()
			c := redistest.ClusterConfig{Config: redistest.Config{Directives: []string{"cluster-require-full-coverage " + coverage}}}.StartCluster(t)
			p := onCluster(t, c)
			var keys, spare []string
			var held []answer
			for n := range 3 {
				keys, spare = append(keys, keyOn(c, n, "k")), append(spare, keyOn(c, n, "spare"))
				held = append(held, p.POST(keys[n], "ttl=8s").Finally(t, 201, "held"))
			}
			c.SetNodeTimeout(1500 * time.Millisecond)
			for _, node := range append(c.ReplicasOf(c.Nodes[0]), c.Nodes[0]) { // nobody can take its place
				node.Kill()
			}
			lost := p.awaitLost(keys[0], 20*time.Second, locker.CauseExpired)
			if lost.JSON.Fence != held[0].JSON.Fence {
				t.Errorf("the loss is told of %d, want %d", lost.JSON.Fence, held[0].JSON.Fence)
			}
			refused := p.awaitRefusal(spare[0], "store_unavailable")
			wantInTime(t, refused, storeTimeout)
			for n := 1; n < 3; n++ {
				if !others {
					p.awaitLost(keys[n], 20*time.Second, locker.CauseExpired)
					p.awaitRefusal(spare[n], "store_unavailable")
					continue
				}
				p.awaitRenewals(keys[n], 2, 20*time.Second)
				granted := p.POST(spare[n]).Finally(t, 201, "held")
				wantInTime(t, granted, storeTimeout)
			}
			if status, text := p.Ready(); (status == 200) != others {
				t.Errorf("readiness is %d %q", status, text)
			}
			c.Nodes[0].Restart()
			eventually(t, 30*time.Second, "its locks are granted again", func() bool { return p.POST(spare[0]).Status == 201 })
		})
	}
}

var clusterDown = regexp.MustCompile(`errorstat_CLUSTERDOWN:count=(\d+)`)

func TestAClusterWithoutAMajorityIsUnavailableAndNotInsistedOn(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	p := onCluster(t, c)
	key, free := keyOn(c, 0, "k"), keyOn(c, 0, "free")
	h := p.POST(key, "ttl=30s").Finally(t, 201, "held")
	waiting := p.enter(c.Nodes[0], key, "wait=1m")
	c.SetNodeTimeout(1500 * time.Millisecond)
	c.Nodes[1].Stop()
	c.Nodes[2].Stop()
	eventually(t, 20*time.Second, "the one that is left says so", func() bool {
		a := p.POST(free)
		if a.Status == 201 {
			p.giveBack(free, a)
		}
		return a.Is(503, "store_unavailable")
	})
	count := func() int {
		match := clusterDown.FindStringSubmatch(c.Nodes[0].Do("INFO", "errorstats").(string))
		if match == nil {
			return 0
		}
		n, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, since := count(), time.Now()
	p.awaitState(key, 20*time.Second, 200, "at_risk")
	if n, most := count()-before, 100+100*int(time.Since(since).Seconds()); n > most {
		t.Errorf("the server was asked in vain %d times, want at most %d", n, most)
	}
	wantInTime(t, p.awaitRefusal(free, "store_unavailable"), storeTimeout)
	c.Nodes[1].Cont()
	c.Nodes[2].Cont()
	if back := p.awaitState(key, 30*time.Second, 200, "held"); back.JSON.Fence != h.JSON.Fence {
		t.Errorf("it is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
	}
	p.giveBack(key, h).Finally(t, 204, "")
	wantFenceAbove(t, (<-waiting).Finally(t, 201, "held"), h)
}

func TestLocksAreHandedOverAcrossTheNodesOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	a, b := onCluster(t, c), onCluster(t, c)
	for n := range 3 {
		key := keyOn(c, n, "k")
		first := a.POST(key, "ttl=1m").Finally(t, 201, "held")
		waiting := b.enter(c.Nodes[n], key, "wait=1m")
		eventually(t, 10*time.Second, "it listens there", func() bool { return len(channels(c.Nodes[n])) > 0 })
		a.giveBack(key, first).Finally(t, 204, "")
		wantFenceAbove(t, (<-waiting).Finally(t, 201, "held"), first)
	}
	if n := b.Metric("locksidecar_wakeups_total"); n < 3 {
		t.Errorf("%v wake-ups for three hand-overs: the others were found out by asking", n)
	}
}

func TestBreakFindsTheServerThatDecides(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1}.StartCluster(t)
	s := redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	for mode, env := range map[string][]string{
		"cluster":  {"REDIS_MODE=cluster", "REDIS_ADDRS=" + c.Nodes[0].Addr()},
		"sentinel": {"REDIS_MODE=sentinel", "SENTINEL_MASTER=" + s.Name, "REDIS_ADDRS=" + strings.Join(s.Addrs(), ",")},
	} {
		t.Run(mode, func(t *testing.T) {
			holder, other := startSidecar(t, append(env, "HOLDER=shop/pod-1")...), startSidecar(t, env...)
			holder.awaitReady()
			other.awaitReady()
			for n := range 3 {
				key := keyOn(c, n, "k") // behind Sentinels there is one server for all
				granted := holder.POST(key, "ttl=2s").Finally(t, 201, "held")
				commander{t, env}.run("break", key, "--yes").want(t, 0, "shop/pod-1")
				holder.awaitLost(key, 5*time.Second, locker.CauseTaken)
				next := other.POST(key, "wait=20s").Finally(t, 201, "held")
				if next.Got.Milliseconds() < granted.JSON.ValidUntilMS {
					t.Errorf("%s was granted %d ms before the lease that it was taken from had ended", key, granted.JSON.ValidUntilMS-next.Got.Milliseconds())
				}
				wantFenceAbove(t, next, granted)
			}
		})
	}
}

func TestSidecarsThatDoNotExcludeEachOtherCanBeTold(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	scope := func(p *proc) string {
		match := regexp.MustCompile(`locksidecar_config_info\{mode="single",scope="(\w+)"\} 1`).FindStringSubmatch(p.Metrics())
		if match == nil {
			t.Fatal("the metrics tell no scope")
		}
		p.AwaitLog(`"scope":"` + match[1] + `"`)
		return match[1]
	}
	one := on(t, r)
	one.POST("k").Finally(t, 201, "held")
	for _, env := range [][]string{{"REDIS_DB=1"}, {"KEY_PREFIX=locks:"}} {
		recordOf(t).standApart("k")
		other := on(t, r, env...)
		other.POST("k").Finally(t, 201, "held")
		if scope(one) == scope(other) {
			t.Errorf("%s: two that do not exclude each other have the same scope", env)
		}
	}
	same := on(t, r, "DEFAULT_TTL=1m")
	same.POST("k").Finally(t, 409, "held")
	if scope(one) != scope(same) {
		t.Error("two that exclude each other have different scopes")
	}
}
