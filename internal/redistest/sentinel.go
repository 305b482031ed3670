package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// SentinelConfig says how a trio of Sentinels and what they watch is to be.
type SentinelConfig struct {
	Config                         // of master and replicas
	Replicas         int           // 0 means 2
	DownAfter        time.Duration // see [Sentinel.SetDownAfter]; 0 means a minute
	SentinelPassword string        // that the Sentinels demand
	Sentinel         []string      // more directives for them
}

// Sentinel is a master with its replicas, and three Sentinels that watch them.
type Sentinel struct {
	*Replicated
	Name      string // of the master
	Sentinels []*Server
}

// StartSentinel starts it all, and returns once everybody knows each other.
func (c SentinelConfig) StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	if c.Replicas == 0 {
		c.Replicas = 2
	}
	c.among = figures.Sentinel
	const sentinels = 3
	servers := startTogether(t, func() []*Server {
		servers := c.prepareReplicated(t, c.Replicas)
		return append(servers, c.prepareSentinels(t, servers, sentinels)...)
	})
	data := c.Replicas + 1
	s := &Sentinel{Replicated: &Replicated{t: t, Servers: servers[:data]}, Name: "mymaster", Sentinels: servers[data:]}
	s.AwaitReplicas(s.Servers[0], c.Replicas)
	s.AwaitAgreement()
	if c.DownAfter != 0 {
		s.SetDownAfter(c.DownAfter)
	}
	return s
}

// patience is how long a server may be silent at first. On a busy machine all
// of them are, for longer than the tests that kill one want to wait.
const patience = time.Minute

// SetDownAfter says for how long a server must be silent to be taken for dead.
func (s *Sentinel) SetDownAfter(d time.Duration) {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		if sentinel.answers() {
			sentinel.Do("SENTINEL", "SET", s.Name, "down-after-milliseconds", d.Milliseconds())
		}
	}
}

func (c SentinelConfig) prepareSentinels(t testing.TB, servers []*Server, n int) []*Server {
	config := Config{
		Password: c.SentinelPassword, TLS: c.TLS, CA: servers[0].ca, sentinel: true, among: figures.Sentinel,
		Directives: append([]string(nil), c.Sentinel...),
	}
	var sentinels []*Server
	for range n {
		sentinels = append(sentinels, config.prepare(t))
	}
	for i, s := range sentinels {
		lines := []string{
			fmt.Sprintf("sentinel myid %040x", i+1),
			fmt.Sprintf("sentinel monitor mymaster 127.0.0.1 %d %d", servers[0].port, n/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds mymaster %d", patience.Milliseconds()),
			"sentinel failover-timeout mymaster 3000",
			"sentinel parallel-syncs mymaster 8",
		}
		if c.Password != "" {
			lines = append(lines, "sentinel auth-pass mymaster "+c.Password)
		}
		if c.SentinelPassword != "" {
			lines = append(lines, "sentinel sentinel-pass "+c.SentinelPassword)
		}
		for _, replica := range servers[1:] {
			lines = append(lines, fmt.Sprintf("sentinel known-replica mymaster 127.0.0.1 %d", replica.port))
		}
		for j, other := range sentinels {
			if j != i {
				lines = append(lines, fmt.Sprintf("sentinel known-sentinel mymaster 127.0.0.1 %d %040x", other.port, j+1))
			}
		}
		s.cfg.Directives = append(lines, s.cfg.Directives...)
	}
	return sentinels
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return addrs
}

// AwaitAgreement returns once all Sentinels that run see each other and all
// servers, and name the same master.
func (s *Sentinel) AwaitAgreement() {
	s.t.Helper()
	await(s.t, "the Sentinels agree", func() bool {
		running := 0
		for _, sentinel := range s.Sentinels {
			if sentinel.answers() {
				running++
			}
		}
		master := s.Master()
		for _, sentinel := range s.Sentinels {
			if !sentinel.answers() {
				continue
			}
			of := sentinel.fields("SENTINEL", "MASTER", s.Name)
			if master == nil || s.named(sentinel) != master || of["flags"] != "master" ||
				s.healthy(sentinel, "SENTINELS") != running-1 || s.healthy(sentinel, "REPLICAS") != len(s.Servers)-1 {
				return false
			}
		}
		return true
	})
}

// healthy counts the others that a Sentinel sees and finds no fault with.
func (s *Sentinel) healthy(sentinel *Server, kind string) int {
	reply, _ := sentinel.Try("SENTINEL", kind, s.Name)
	others, _ := reply.([]any)
	n := 0
	for _, other := range others {
		if flags := pairs(other)["flags"]; !strings.Contains(flags, "down") && !strings.Contains(flags, "disconnected") {
			n++
		}
	}
	return n
}

// Master returns the master that most Sentinels name, if it says so too; else
// nil.
func (s *Sentinel) Master() *Server {
	votes := make(map[*Server]int)
	for _, sentinel := range s.Sentinels {
		if master := s.named(sentinel); master != nil {
			votes[master]++
			if votes[master] > len(s.Sentinels)/2 && master.Role() == "master" {
				return master
			}
		}
	}
	return nil
}

// named returns the master that a Sentinel names; nil if it does not answer.
func (s *Sentinel) named(sentinel *Server) *Server {
	if !sentinel.answers() {
		return nil
	}
	reply, _ := sentinel.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return nil
	}
	port, _ := pair[1].(string)
	return at(s.Servers, port)
}

// AwaitMaster returns the master once it is another than that.
func (s *Sentinel) AwaitMaster(old *Server) *Server {
	s.t.Helper()
	var master *Server
	await(s.t, "the Sentinels have another master", func() bool {
		master = s.Master()
		return master != nil && master != old
	})
	figures.Count(figures.Failover, figures.Sentinel, 1)
	return master
}

// Failover has the Sentinels exchange a healthy master, and returns the new one
// once most of them name it. They let the old one be a master for up to ten
// seconds more.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	var old *Server
	await(s.t, "the Sentinels have a master", func() bool {
		old = s.Master()
		return old != nil
	})
	var next *Server
	await(s.t, "the Sentinels have another master", func() bool {
		// It may not have begun, while the latest is not over, and is given up
		// if the one to be promoted is slow.
		lead := s.Sentinels[0]
		if flags := lead.fields("SENTINEL", "MASTER", s.Name)["flags"]; flags == "master" && s.named(lead) == old {
			_, _ = lead.Try("SENTINEL", "FAILOVER", s.Name)
		}
		next = s.Master()
		return next != nil && next != old
	})
	figures.Count(figures.Failover, figures.Sentinel, 1)
	return next
}

// fields asks for a flat list of names and values.
func (s *Server) fields(args ...any) map[string]string {
	reply, _ := s.Try(args...)
	return pairs(reply)
}

func pairs(reply any) map[string]string {
	flat, _ := reply.([]any)
	fields := make(map[string]string)
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		value, _ := flat[i+1].(string)
		fields[name] = value
	}
	return fields
}
