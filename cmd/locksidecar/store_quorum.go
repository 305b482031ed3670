package main

import (
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
	"github.com/locksidecar/locksidecar/internal/locker/redis"
)

// openQuorum makes the store of all servers, of which a majority decides.
func (s *store) openQuorum(settings Settings) (err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var members []quorum.Member
	for _, addr := range settings.RedisAddrs {
		node, err := openNode(settings, RedisAddrs{addr}, s.log)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
		members = append(members, quorum.Member{Name: node.name, Member: node.Backend})
	}
	s.quorum, err = quorum.New(quorum.Config{Members: members, NodeTimeout: settings.RedisNodeTimeout, Log: s.log})
	if err != nil {
		return err
	}
	s.Backend = s.quorum
	return nil
}

// checkSameServer warns if a server has several names. Its vote counts as many
// times then, and what it loses is lost as many times.
const checkSameServer = "same_server"

// compare warns of servers that are one and the same.
func (s *store) compare() {
	if s.quorum == nil {
		return
	}
	first := make(map[string]string) // the first name of each, by what tells them apart
	for _, n := range s.nodes {
		n.mu.Lock()
		id := n.runID
		n.mu.Unlock()
		if id == "" || id == redis.Unknown {
			continue
		}
		other, known := first[id]
		if !known {
			first[id] = n.name
		}
		n.sameAs(other)
	}
}

// sameAs takes in that the server is also known by another name; empty if it
// is not.
func (n *storeNode) sameAs(other string) {
	n.mu.Lock()
	was := n.twin
	n.twin = nil
	if other != "" {
		n.twin = &redis.Warning{Check: checkSameServer, Unsafe: true, Message: "it is the same server as " + other + ", so its vote counts twice; name another one"}
	}
	now := n.twin
	n.mu.Unlock()
	if now != nil && was == nil {
		n.log.Warn("the store endangers locks: "+now.Message, "check", now.Check, "node", n.name)
	}
}
