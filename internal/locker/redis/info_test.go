package redis

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestWarningsAreGivenForWhatEndangersLocks(t *testing.T) {
	good := ServerInfo{Version: "7.0.15", Role: "master", MaxmemoryPolicy: "noeviction", Persistence: "aof", Replicas: 1, MinReplicas: 1}
	for _, c := range []struct {
		name   string
		kind   Kind
		acks   int
		change func(*ServerInfo)
		want   []string // with a ! if it is unsafe
	}{
		{"a good server", Sentinel, 1, func(*ServerInfo) {}, nil},
		{"eviction", Single, 1, func(s *ServerInfo) { s.MaxmemoryPolicy = "volatile-ttl" }, []string{"!eviction"}},
		{"no persistence", Single, 1, func(s *ServerInfo) { s.Persistence = "none" }, []string{"!persistence"}},
		{"snapshots alone", Single, 1, func(s *ServerInfo) { s.Persistence = "rdb" }, []string{"!persistence"}},
		{"guarded, no persistence", Single, 1, func(s *ServerInfo) { s.Persistence = "none" }, nil},
		{"guarded, replicas that nobody waits for", Single, 0, func(*ServerInfo) {}, []string{"replicas"}},
		{"both kinds", Single, 1, func(s *ServerInfo) { s.Persistence = "rdb+aof" }, nil},
		{"replicas that nobody waits for", Single, 0, func(*ServerInfo) {}, []string{"!replicas"}},
		{"in a cluster", Cluster, 0, func(*ServerInfo) {}, []string{"!replicas"}},
		{"no replicas", Sentinel, 0, func(s *ServerInfo) { s.Replicas = 0 }, nil},
		{"a master that may be cut off", Sentinel, 0, func(s *ServerInfo) { s.Replicas, s.MinReplicas = 0, 0 }, []string{"!min_replicas"}},
		{"one whose replicas acknowledge", Sentinel, 1, func(s *ServerInfo) { s.MinReplicas = 0 }, []string{"min_replicas"}},
		{"one that no Sentinel exchanges", Single, 1, func(s *ServerInfo) { s.MinReplicas = 0 }, nil},
		{"an old version", Single, 1, func(s *ServerInfo) { s.Version = "6.0.16" }, []string{"!version"}},
		{"the oldest version", Single, 1, func(s *ServerInfo) { s.Version = "6.2.0" }, nil},
		{"a version of two digits", Single, 1, func(s *ServerInfo) { s.Version = "10.0.1" }, nil},
		{"a version that cannot be read", Single, 1, func(s *ServerInfo) { s.Version = "unstable" }, nil},
		{"a replica", Single, 1, func(s *ServerInfo) { s.Role = "slave" }, []string{"!role"}},
		{"a clock that steps", Single, 1, func(s *ServerInfo) { s.ClockStep = -time.Second }, []string{"clock_step"}},
		{"a server that tells nothing", Sentinel, 0, func(s *ServerInfo) {
			*s = ServerInfo{"", Unknown, Unknown, Unknown, Unknown, Unknown, -1, -1, 0}
		}, nil},
	} {
		s := good
		c.change(&s)
		var got []string
		for _, w := range s.warnings(c.kind, c.acks, strings.HasPrefix(c.name, "guarded")) {
			got = append(got, map[bool]string{true: "!"}[w.Unsafe]+w.Check)
			if w.Message == "" || !slices.Contains(CheckNames, w.Check) {
				t.Errorf("%s: the warning %s has the message %q", c.name, w.Check, w.Message)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func checksOf(t *testing.T, b *Backend) map[string]Warning {
	t.Helper()
	r, err := b.Report(t.Context())
	if err != nil {
		t.Fatalf("report: %v", err)
	}
	checks := make(map[string]Warning)
	for _, w := range r.Warnings {
		if checks[w.Check].Check != "" {
			t.Errorf("two warnings of %s", w.Check)
		}
		checks[w.Check] = w
	}
	return checks
}

func wantChecks(t *testing.T, what string, b *Backend, want ...string) map[string]Warning {
	t.Helper()
	checks := checksOf(t, b)
	for check := range checks {
		if !slices.Contains(want, check) {
			t.Errorf("%s: a warning of %s: %s", what, check, checks[check].Message)
		}
	}
	for _, check := range want {
		if checks[check].Check == "" {
			t.Errorf("%s: no warning of %s", what, check)
		}
	}
	return checks
}

func TestAServerIsAskedWhatEndangersLocks(t *testing.T) {
	t.Parallel()
	r := redistest.Config{Directives: []string{"appendonly yes"}}.StartReplicated(t, 1)
	master := r.Servers[0]
	b := open(t, master, Config{MinReplicas: 1})
	wantChecks(t, "a good server", b)
	wantChecks(t, "without acknowledgement", open(t, master, Config{}), "replicas")
	master.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "appendonly", "no")
	wantChecks(t, "a bad one", b, "eviction", "persistence")
	master.Do("CONFIG", "SET", "maxmemory-policy", "noeviction", "save", "3600 1")
	if w := wantChecks(t, "snapshots", b, "persistence"); !strings.Contains(w["persistence"].Message, "snapshots") {
		t.Errorf("it says %q", w["persistence"].Message)
	}
	master.Do("CONFIG", "SET", "appendonly", "yes")
	wantChecks(t, "put right", b)
	demote(master)
	wantChecks(t, "demoted", b, "role")
}

func TestAMasterThatSentinelsMayExchangeIsAskedForItsLeastReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelConfig{Config: redistest.Config{Directives: []string{"appendonly yes"}}, Replicas: 1}.StartSentinel(t)
	b := openSentinel(t, s, Config{MinReplicas: 1})
	wantChecks(t, "by default", b, "min_replicas")
	for _, server := range s.Servers {
		server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	}
	wantChecks(t, "put right", b)
	next := s.Failover()
	eventually(t, "the backend has gone over", func() bool { return masterIs(b, next) })
	next.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	wantChecks(t, "after a failover", b, "min_replicas")
}

func TestAllServersOfAClusterAreAsked(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterConfig{Replicas: -1, Config: redistest.Config{Directives: []string{"appendonly yes"}}}.StartCluster(t)
	b := openCluster(t, c, Config{})
	wantChecks(t, "a good cluster", b)
	c.Nodes[1].Do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	c.Nodes[2].Do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	w := wantChecks(t, "two that evict", b, "eviction")["eviction"]
	for i, node := range c.Nodes {
		if named := strings.Contains(w.Message, node.Addr()); named != (i > 0) {
			t.Errorf("node %d is named: %v, in %q", i, named, w.Message)
		}
	}
	c.Nodes[1].Kill()
	if r, err := b.Report(t.Context()); err != nil || len(r.Servers) != 2 || len(r.Warnings) != 1 {
		t.Errorf("with one that is down: %+v, %v", r, err)
	}
}

func TestAClockThatHasSteppedIsToldForAnHour(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendonly yes")
	var late time.Duration
	b := open(t, server, Config{Now: func() locker.Instant { return locker.BootTime().Add(late) }})
	wantChecks(t, "at first", b)
	n := only(b)
	now := b.now()
	n.clock.observe(reading{micros: time.Now().Add(3 * time.Second).UnixMicro(), sent: now, received: now})
	if w := wantChecks(t, "after a step", b, "clock_step")["clock_step"]; !strings.Contains(w.Message, "jumped by") || w.Unsafe {
		t.Errorf("it says %q, unsafe: %v", w.Message, w.Unsafe)
	}
	late = stepTold + time.Minute
	n.clock.mu.Lock()
	n.clock.known = false // what the leap of ours looks like
	n.clock.mu.Unlock()
	wantChecks(t, "an hour later", b)
}

func TestWhatOurUserMayNotDoIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory-policy allkeys-lru")
	permit(t, []*redistest.Server{server}, "single")
	setUser(server, "-publish")
	log := &lines{}
	b := open(t, server, Config{Username: value("locksidecar"), Password: value(password), Log: slog.New(slog.NewTextHandler(log, nil))})
	w := newWaiter(b, "p")
	w.listen(t)
	eventually(t, "the lack of a channel is noticed", func() bool { return b.lacks.has(lackPublish) })
	for range 2 {
		warning := wantChecks(t, "the least", b, "permissions")["permissions"]
		for _, word := range []string{"INFO", "CONFIG GET", "publish"} {
			if !strings.Contains(warning.Message, word) {
				t.Errorf("%q does not tell of %s", warning.Message, word)
			}
		}
		if !warning.Unsafe {
			t.Error("what cannot be checked counts as safe")
		}
	}
	for _, line := range []string{"run INFO", "run CONFIG GET", "publish on"} {
		if n := strings.Count(log.all(), "Redis does not let us "+line); n != 1 {
			t.Errorf("the log tells %d times of %s", n, line)
		}
	}
	setUser(server, "+info", "+publish")
	if warning := wantChecks(t, "with INFO", b, "eviction", "permissions")["permissions"]; strings.Contains(warning.Message, "INFO") || strings.Contains(warning.Message, "publish") {
		t.Errorf("it still says %q", warning.Message)
	}
	setUser(server, "+config|get")
	wantChecks(t, "with both", b, "eviction", "persistence")
	if strings.Contains(fmt.Sprint(checksOf(t, b)), password) {
		t.Error("the password is told")
	}
}

// Some who offer Redis as a service take commands away instead of permissions.
func TestCommandsThatAreTakenAwayAreMissedAsPermissionsAre(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, `rename-command INFO ""`, `rename-command CONFIG ""`)
	b := open(t, server, Config{})
	warning := wantChecks(t, "without INFO and CONFIG", b, "permissions")["permissions"]
	for _, command := range []string{"INFO", "CONFIG GET"} {
		if !strings.Contains(warning.Message, command) {
			t.Errorf("%q does not tell of %s", warning.Message, command)
		}
	}
	cycle(t, b)
}

// What is refused for now, or to whom we are by mistake, says nothing of what we
// may do; and what we know of that is not forgotten for it.
func TestWhatIsRefusedForNowIsNotTakenForForbidden(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"BUSY Redis is busy running a script.", "WRONGPASS invalid username-password pair or user is disabled.", "NOAUTH Authentication required.",
		"LOADING Redis is loading the dataset in memory", "MISCONF Errors writing to the AOF file",
	} {
		server := redistest.Start(t)
		proxy := faultproxy.Start(t, "tcp", server.Addr())
		b := open(t, server, Config{Addrs: []Address{TCP(proxy.Addr())}})
		proxy.SetRule(func(c faultproxy.Command) (a faultproxy.Action) {
			if c.Name == "INFO" {
				a.Replace = func([]byte) []byte { return []byte("-" + reply + "\r\n") }
			}
			return a
		})
		if r, err := b.Report(t.Context()); err == nil {
			t.Errorf("after %q there is a report: %+v", reply, r)
		}
		if b.lacks.has(lackInfo) {
			t.Errorf("%q counts as a lack of permission", reply)
		}
	}
}
