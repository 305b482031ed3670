package redistest_test

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestAMasterAndItsReplicasAreInStepFromTheStart(t *testing.T) {
	t.Parallel()
	r := redistest.Config{Password: "secret"}.StartReplicated(t, 2)
	if n := r.Servers[0].Do("WAIT", 2, 0); n != int64(2) {
		t.Errorf("%v replicas are in step, want 2", n)
	}
	r.Servers[0].Do("SET", "k", "v")
	r.Servers[0].AwaitReplicated(2)
	for _, replica := range r.Replicas(r.Servers[0]) {
		if v, ok := replica.Get("k"); v != "v" || !ok || replica.Role() != "slave" {
			t.Errorf("%s is a %s and has %q", replica.Addr(), replica.Role(), v)
		}
	}
}

func TestSentinelsExchangeTheMaster(t *testing.T) {
	t.Parallel()
	since := time.Now()
	s := redistest.SentinelConfig{Config: redistest.Config{Password: "secret"}, SentinelPassword: "other"}.StartSentinel(t)
	t.Logf("started in %v", time.Since(since))
	first := s.Master()
	since = time.Now()
	second := s.Failover()
	t.Logf("exchanged in %v", time.Since(since))
	if second == first || second.Role() != "master" {
		t.Errorf("the new master is a %q", second.Role())
	}
	s.SetDownAfter(500 * time.Millisecond)
	since = time.Now()
	second.Kill()
	third := s.AwaitMaster(second)
	t.Logf("dead one replaced in %v", time.Since(since))
	if third == second || third.Role() != "master" {
		t.Errorf("its successor is a %q", third.Role())
	}
}

func TestAClusterMovesSlotsAndReplacesMasters(t *testing.T) {
	t.Parallel()
	since := time.Now()
	c := redistest.ClusterConfig{}.StartCluster(t)
	t.Logf("started in %v", time.Since(since))
	from := c.MasterOf("k")
	from.Do("SET", "k", "v")
	to := c.MasterOf("another")
	if to == from {
		t.Fatal("choose other names")
	}
	c.Move("k", to)
	if v, ok := to.Get("k"); v != "v" || !ok || c.MasterOf("k") != to {
		t.Errorf("the new owner has %q", v)
	}
	since = time.Now()
	next := c.Failover("k")
	t.Logf("exchanged in %v", time.Since(since))
	c.AwaitOK()
	c.SetNodeTimeout(1500 * time.Millisecond)
	since = time.Now()
	next.Kill()
	if c.AwaitMaster("k", next) != to {
		t.Error("another than its replica has taken over")
	}
	t.Logf("dead one replaced in %v", time.Since(since))
	next.Restart()
	c.AwaitOK()
}

func TestATopologyCanSpeakTLSAlone(t *testing.T) {
	t.Parallel()
	c := redistest.Config{TLS: true}
	redistest.SentinelConfig{Config: c, Replicas: 1}.StartSentinel(t)
	redistest.ClusterConfig{Config: c, Replicas: -1}.StartCluster(t)
}
