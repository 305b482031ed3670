package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// ClusterConfig says how a cluster is to be.
type ClusterConfig struct {
	Config
	Masters     int           // 0 means 3
	Replicas    int           // of each; 0 means 1, below 0 none
	NodeTimeout time.Duration // see [Cluster.SetNodeTimeout]; 0 means a minute
}

// Cluster is a Redis Cluster. Nodes has the masters first, in the order of
// their slots, and then a replica of each, and so on.
type Cluster struct {
	Nodes []*Server

	t       testing.TB
	masters int
}

const slots = 16384

// StartCluster starts a cluster that takes writes by the time it returns.
func (c ClusterConfig) StartCluster(t testing.TB) *Cluster {
	t.Helper()
	if c.Masters == 0 {
		c.Masters = 3
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.TLS && c.CA == nil {
		c.CA = NewCA(t)
	}
	c.among = figures.Cluster
	cluster := &Cluster{t: t, masters: c.Masters}
	cluster.Nodes = startTogether(t, func() []*Server { return c.prepareCluster(t) })
	cluster.AwaitOK()
	if c.NodeTimeout != 0 {
		cluster.SetNodeTimeout(c.NodeTimeout)
	}
	return cluster
}

// SetNodeTimeout says for how long a node must be silent to be taken for dead.
func (c *Cluster) SetNodeTimeout(d time.Duration) {
	c.t.Helper()
	for _, node := range c.Nodes {
		if node.answers() {
			node.Do("CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
		}
	}
}

// prepareCluster writes the nodes' own files as if they had met before: that
// saves the seconds that gossip takes.
func (c ClusterConfig) prepareCluster(t testing.TB) []*Server {
	var nodes []*Server
	var buses []int
	for range c.Masters * (1 + max(0, c.Replicas)) {
		bus := freePort(t)
		config := c.Config.with(
			"cluster-enabled yes", "cluster-config-file nodes.conf", fmt.Sprintf("cluster-port %d", bus),
			fmt.Sprintf("cluster-node-timeout %d", patience.Milliseconds()),
			"cluster-allow-replica-migration no", "cluster-replica-validity-factor 0",
		)
		if c.TLS {
			config = config.with("tls-cluster yes")
		}
		// What the test asks for comes last.
		config.Directives = append(config.Directives, c.Directives...)
		nodes, buses = append(nodes, config.prepare(t)), append(buses, bus)
	}
	for self := range nodes {
		var lines strings.Builder
		for i, node := range nodes {
			flags, master, owned := "master", "-", ""
			if i < c.Masters {
				owned = fmt.Sprintf(" %d-%d", i*slots/c.Masters, (i+1)*slots/c.Masters-1)
			} else {
				flags, master = "slave", nodeID(i%c.Masters)
			}
			if i == self {
				flags = "myself," + flags
			}
			fmt.Fprintf(&lines, "%s 127.0.0.1:%d@%d %s %s 0 0 %d connected%s\n",
				nodeID(i), node.port, buses[i], flags, master, i%c.Masters+1, owned)
		}
		fmt.Fprintf(&lines, "vars currentEpoch %d lastVoteEpoch 0\n", c.Masters)
		if err := os.WriteFile(filepath.Join(nodes[self].dir, "nodes.conf"), []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func nodeID(i int) string { return fmt.Sprintf("%040x", i+1) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// AwaitOK returns once every node that runs finds the cluster whole, and every
// replica that runs is in step with its master.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	await(c.t, "the cluster is whole", func() bool {
		for _, node := range c.Nodes {
			if !node.answers() {
				continue
			}
			reply, _ := node.Try("CLUSTER", "INFO")
			text, _ := reply.(string)
			if !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d", slots)) {
				return false
			}
			replication := node.info("replication")
			if strings.Contains(replication, "role:slave") && !strings.Contains(replication, "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// Slot returns the slot of a name.
func (c *Cluster) Slot(name string) int {
	c.t.Helper()
	return int(replyAs[int64](c.t, c.anyNode().Do("CLUSTER", "KEYSLOT", name)))
}

// anyNode returns one that answers.
func (c *Cluster) anyNode() *Server {
	c.t.Helper()
	i := slices.IndexFunc(c.Nodes, (*Server).answers)
	if i < 0 {
		c.t.Fatal("no node of the cluster runs")
	}
	return c.Nodes[i]
}

// MasterOf returns the node that has a name's slot by its own account, or nil.
func (c *Cluster) MasterOf(name string) *Server {
	c.t.Helper()
	slot := c.Slot(name)
	for _, node := range c.Nodes {
		if node.Role() == "master" && node.owns(slot) {
			return node
		}
	}
	return nil
}

// owns tells whether a node takes itself for the owner of a slot.
func (s *Server) owns(slot int) bool {
	reply, _ := s.Try("CLUSTER", "SLOTS")
	ranges, _ := reply.([]any)
	for _, entry := range ranges {
		fields, _ := entry.([]any)
		first, _ := fields[0].(int64)
		last, _ := fields[1].(int64)
		if int64(slot) >= first && int64(slot) <= last {
			master, _ := fields[2].([]any)
			return master[1] == int64(s.port)
		}
	}
	return false
}

// ReplicasOf returns the nodes that replicate a master.
func (c *Cluster) ReplicasOf(master *Server) []*Server {
	var all []*Server
	for _, node := range c.Nodes {
		if node != master && strings.Contains(node.info("replication"), "master_port:"+strconv.Itoa(master.port)+"\r\n") {
			all = append(all, node)
		}
	}
	return all
}

// Failover exchanges the master of a name for its replica, both healthy, and
// returns the new one.
func (c *Cluster) Failover(name string) *Server {
	c.t.Helper()
	old := c.MasterOf(name)
	c.ReplicasOf(old)[0].Do("CLUSTER", "FAILOVER")
	return c.AwaitMaster(name, old)
}

// AwaitMaster returns the master of a name once it is another than that.
func (c *Cluster) AwaitMaster(name string, old *Server) *Server {
	c.t.Helper()
	var master *Server
	await(c.t, "another master has "+name, func() bool {
		master = c.MasterOf(name)
		return master != nil && master != old
	})
	figures.Count(figures.Failover, figures.Cluster, 1)
	return master
}

// Begin marks a name's slot as on its way from its master to another node.
func (c *Cluster) Begin(name string, to *Server) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: c.Slot(name), From: c.MasterOf(name), To: to}
	figures.Count(figures.SlotMoved, figures.Cluster, 1)
	to.Do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.From.id())
	m.From.Do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", to.id())
	return m
}

// Move is a slot on its way.
type Move struct {
	From, To *Server

	c    *Cluster
	slot int
}

// Keys moves names, if they are there. It fails where the other node has one
// already.
func (m *Move) Keys(names ...string) {
	m.c.t.Helper()
	args := []any{"MIGRATE", "127.0.0.1", m.To.port, "", 0, 10_000, "KEYS"}
	for _, name := range names {
		args = append(args, name)
	}
	m.From.Do(args...)
}

// End moves what is left and gives the slot to the other node.
func (m *Move) End() {
	m.c.t.Helper()
	for {
		names := replyAs[[]any](m.c.t, m.From.Do("CLUSTER", "GETKEYSINSLOT", m.slot, 100))
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			m.Keys(replyAs[string](m.c.t, name))
		}
	}
	for _, node := range append([]*Server{m.To, m.From}, m.c.Nodes...) {
		if node.Role() == "master" {
			node.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.To.id())
		}
	}
}

// Move gives a name's slot to another node, with all that is in it.
func (c *Cluster) Move(name string, to *Server) {
	c.t.Helper()
	c.Begin(name, to).End()
}

// id returns the node's name in its cluster.
func (s *Server) id() string {
	s.t.Helper()
	return replyAs[string](s.t, s.Do("CLUSTER", "MYID"))
}
