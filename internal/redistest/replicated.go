package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// Replicated is a master and its replicas.
type Replicated struct {
	Servers []*Server // the first was started as the master

	t testing.TB
}

// StartReplicated starts a master and replicas, which are in step with it by
// the time it returns. A server that is restarted comes back as what it was
// started as, as in a pod without a volume.
func (c Config) StartReplicated(t testing.TB, replicas int) *Replicated {
	t.Helper()
	c.among = figures.Replicated
	r := &Replicated{t: t, Servers: startTogether(t, func() []*Server { return c.prepareReplicated(t, replicas) })}
	r.AwaitReplicas(r.Servers[0], replicas)
	return r
}

func (c Config) prepareReplicated(t testing.TB, replicas int) []*Server {
	if c.TLS && c.CA == nil {
		c.CA = NewCA(t)
	}
	servers := []*Server{c.prepare(t)}
	for range replicas {
		servers = append(servers, c.with(fmt.Sprintf("replicaof 127.0.0.1 %d", servers[0].port)).prepare(t))
	}
	return servers
}

// with returns the configuration with more directives.
func (c Config) with(directives ...string) Config {
	c.Directives = append(append([]string(nil), c.Directives...), directives...)
	return c
}

// AwaitReplicas returns once at least so many replicas are in step with a master.
func (r *Replicated) AwaitReplicas(master *Server, n int) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("%s has %d replicas", master.Addr(), n), func() bool {
		return strings.Count(master.info("replication"), "state=online") >= n
	})
	master.AwaitReplicated(n)
}

// AwaitReplicated returns once at least so many replicas have all that was written to
// the server before the call.
func (s *Server) AwaitReplicated(n int) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%d replicas have all that %s has", n, s.Addr()), func() bool {
		in, err := s.replicated(n)
		return err == nil && in >= int64(n)
	})
}

// replicated writes something over a connection of its own and waits for the
// replicas to have it, for at most a second: WAIT counts from the last write of
// its own connection. A node of a cluster takes only keys of its own slots.
func (s *Server) replicated(n int) (int64, error) {
	c, err := s.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for i := 0; ; i++ {
		key := fmt.Sprint("redistest:", i)
		_, err := c.Do("SET", key, "")
		var refused Error
		if errors.As(err, &refused) && strings.HasPrefix(string(refused), "MOVED ") && i < 1000 {
			continue
		}
		if err != nil {
			return 0, err
		}
		if _, err := c.Do("DEL", key); err != nil {
			return 0, err
		}
		in, err := c.Do("WAIT", n, 1000)
		if err != nil {
			return 0, err
		}
		return in.(int64), nil
	}
}

// Replicas returns all servers but one.
func (r *Replicated) Replicas(master *Server) []*Server {
	var others []*Server
	for _, s := range r.Servers {
		if s != master {
			others = append(others, s)
		}
	}
	return others
}

// at returns the server that listens on the port.
func at(servers []*Server, port string) *Server {
	for _, s := range servers {
		if strconv.Itoa(s.port) == port {
			return s
		}
	}
	return nil
}

// Role returns master, slave, or nothing if the server does not answer.
func (s *Server) Role() string {
	if !s.answers() {
		return ""
	}
	reply, err := s.Try("ROLE")
	fields, ok := reply.([]any)
	if err != nil || !ok || len(fields) == 0 {
		return ""
	}
	role, _ := fields[0].(string)
	return role
}

// answers tells whether the process runs and is not frozen.
func (s *Server) answers() bool { return s.cmd != nil && !s.frozen }

// info returns a section of INFO; nothing if the server does not answer.
func (s *Server) info(section string) string {
	if !s.answers() {
		return ""
	}
	reply, _ := s.Try("INFO", section)
	text, _ := reply.(string)
	return text
}
