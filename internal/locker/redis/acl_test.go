package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// wantUsed fails the test unless some server has run each command of what is
// documented under the name.
func wantUsed(t *testing.T, servers []*redistest.Server, name string) {
	t.Helper()
	for _, rule := range redistest.DocumentedACL(t, name) {
		command, ok := strings.CutPrefix(rule, "+")
		if ok && !slices.ContainsFunc(servers, func(s *redistest.Server) bool { return s.Ran(command) }) {
			t.Errorf("%s: nothing needs +%s", name, command)
		}
	}
}

func TestThePermissionsInAClusterSufficeAndAreNeeded(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{}.StartCluster(t)
	permit(t, c.Nodes, "cluster", "replicas", "checks")
	b := openCluster(t, c, asUser(Config{MinReplicas: 1}))
	cycle(t, b)
	if _, err := b.Report(t.Context()); err != nil {
		t.Errorf("report: %v", err)
	}
	held := claimFor("held")
	mustAcquire(t, b, held)
	name := b.keys.lock("held")
	from := c.MasterOf(name)
	m := c.Begin(name, c.Nodes[(slices.Index(c.Nodes, from)+1)%3])
	m.Keys(append(b.keys.companions("held"), name)...)
	if err := renewOne(t.Context(), b, held); err != nil {
		t.Errorf("renew while it moves: %v", err)
	}
	m.End()
	c.Failover(name).AwaitReplicated(1)
	if err := renewOne(t.Context(), b, held); err != nil {
		t.Errorf("renew after a failover: %v", err)
	}
	wantNothingDenied(t, c.Nodes)
	for _, name := range []string{"cluster", "replicas", "checks"} {
		wantUsed(t, c.Nodes, name)
	}
}

func TestThePermissionsBehindSentinelsSufficeAndAreNeeded(t *testing.T) {
	t.Parallel()
	own := redistest.DocumentedACL(t, "of-sentinels")
	s := redistest.SentinelConfig{
		Config:   redistest.Config{Directives: []string{"user sentinel >" + password + " " + strings.Join(own, " ")}},
		Sentinel: []string{"sentinel auth-user mymaster sentinel", "sentinel auth-pass mymaster " + password},
	}.StartSentinel(t)
	permit(t, s.Servers, "sentinel", "replicas", "checks")
	permit(t, s.Sentinels, "at-sentinels")
	b := openSentinel(t, s, asUser(Config{Kind: Sentinel, MinReplicas: 1}))
	cycle(t, b)
	next := s.Failover()
	eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
	s.AwaitReplicas(next, 1)
	cycle(t, b)
	if _, err := b.Report(t.Context()); err != nil {
		t.Errorf("report: %v", err)
	}
	wantNothingDenied(t, slices.Concat(s.Servers, s.Sentinels))
	for _, name := range []string{"sentinel", "replicas", "checks"} {
		wantUsed(t, s.Servers, name)
	}
	b.Close()
	for _, rule := range redistest.DocumentedACL(t, "at-sentinels") {
		command, ok := strings.CutPrefix(rule, "+")
		if !ok {
			continue
		}
		for _, sentinel := range s.Sentinels {
			setUser(sentinel, "-"+command)
			sentinel.Do("ACL", "LOG", "RESET")
		}
		b := openSentinel(t, s, asUser(Config{Kind: Sentinel}))
		eventually(t, "+"+command+" is missed", func() bool { return len(s.Sentinels[0].Denied()) > 0 })
		b.Close()
		for _, sentinel := range s.Sentinels {
			setUser(sentinel, "+"+command)
		}
	}
}
