package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// What users of other libraries have reported of majorities, tried here; see
// docs/guarantees.md.

// No server has a role of its own, at the start neither.
func TestASidecarStartsWithAMajorityWhicheverServerIsDown(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			m := startMajority(t, 3)
			m[i].Kill()
			p := m.on(t)
			a := p.POST("k", "ttl=3s").Finally(t, 201, "held")
			p.awaitRenewals("k", 2, 10*time.Second)
			p.giveBack("k", a).Finally(t, 204, "")
		})
	}
}

// The lock is lost, and told to be; what is left of it is given back.
func TestALockThatAMajorityHasLostIsToldAndTheRestOfItGivenBack(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	p := m.on(t)
	p.POST("k", "ttl=30s").Finally(t, 201, "held")
	eventually(t, 5*time.Second, "it is everywhere", func() bool { return m.with("k") == 3 })
	m[0].Do("DEL", "lock:k")
	m[2].Do("DEL", "lock:k")
	a := p.DELETE("k").Want(t, 410, "lost")
	wantInTime(t, a, storeTimeout)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return m.with("k") == 0 })
}

// One server has forgotten the scripts, and nobody notices.
func TestAServerThatHasForgottenTheScriptsLosesNoVote(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	p := m.on(t)
	for i, s := range m {
		a := p.POST("k", "ttl=3s").Finally(t, 201, "held")
		s.Do("SCRIPT", "FLUSH")
		p.awaitRenewals("k", 1, 10*time.Second)
		s.Do("SCRIPT", "FLUSH")
		p.giveBack("k", a).Finally(t, 204, "")
		key := fmt.Sprint("k", i)
		s.Do("SCRIPT", "FLUSH")
		p.POST(key).Finally(t, 201, "held")
		eventually(t, 5*time.Second, key+" is everywhere", func() bool { return m.with(key) == 3 })
	}
}

// A cluster's nodes, and replicas, are no independent servers: they are not
// ready, and say why.
func TestServersThatAreNotIndependentAreNotReady(t *testing.T) {
	t.Parallel()
	t.Run("nodes of a cluster", func(t *testing.T) {
		t.Parallel()
		m := majority(redistest.Config{Directives: []string{"cluster-enabled yes"}}.StartMany(t, 3))
		for _, s := range m {
			s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			eventually(t, 20*time.Second, "the cluster of one is whole", func() bool {
				info, _ := s.Do("CLUSTER", "INFO").(string)
				return strings.Contains(info, "cluster_state:ok")
			})
		}
		p := startSidecar(t, m.env()...)
		eventually(t, 10*time.Second, "it is told", func() bool {
			status, text := p.Ready()
			return status == 503 && strings.Contains(text, "a node of a Redis Cluster")
		})
	})
	t.Run("a master and its replicas", func(t *testing.T) {
		t.Parallel()
		r := redistest.Config{}.StartReplicated(t, 2)
		p := startSidecar(t, majority(r.Servers).env()...)
		p.AwaitLog("a node of the quorum does not answer")
		eventually(t, 10*time.Second, "it has not enough of them", func() bool {
			status, text := p.Ready()
			return status == 503 && strings.Contains(text, "no_quorum")
		})
		p.POST("k").Want(t, 503, "")
	})
	t.Run("one server by two names", func(t *testing.T) {
		t.Parallel()
		m := startMajority(t, 2)
		_, port, _ := strings.Cut(m[0].Addr(), ":")
		p := startSidecar(t, m.env("REDIS_ADDRS="+m[0].Addr()+","+m[1].Addr()+",localhost:"+port)...)
		p.AwaitLog(`"check":"same_server"`)
		eventually(t, 10*time.Second, "readiness names both", func() bool {
			status, text := p.Ready()
			return status == 503 && strings.Contains(text, m[0].Addr()) && strings.Contains(text, "localhost:"+port)
		})
	})
}
