package redis

import (
	"sync/atomic"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// node is one server: what is known of its clock, and connections for each
// purpose, so that neither renewals nor releases ever queue behind acquires.
type node struct {
	address Address
	clock   *serverClock
	acquire *pipeline // and all that only looks
	grant   *pipeline // what waits for replicas; else it is acquire
	renew   *pipeline
	release *pipeline
}

// purpose names one of a node's groups of connections.
type purpose int

const (
	toAcquire purpose = iota
	toHandOver
	toLook
	toRenew
	toRelease
)

// Lanes of the pipelines. A second one lets the server work on a batch while
// the answers to another are being read.
const (
	acquireLanes = 2
	renewLanes   = 2
	releaseLanes = 2

	// Each of these is taken for as long as replicas take to answer.
	grantLanes           = 4
	replicatedRenewLanes = 4
)

// nodes makes nodes that differ in their address alone.
type nodes struct {
	config Config
	greet  greeting
	ids    atomic.Uint64 // of calls
	lacks  *lacks
	runs   runs
}

func (f *nodes) new(a Address) *node {
	c := f.connector(a, f.greet)
	pipeline := func(name string, lanes int) *pipeline { return f.pipeline(name, c, lanes) }
	n := &node{
		address: a,
		clock:   c.clock,
		acquire: pipeline("acquire", acquireLanes),
		release: pipeline("release", releaseLanes),
	}
	if f.config.MinReplicas == 0 {
		n.grant, n.renew = n.acquire, pipeline("renew", renewLanes)
		return n
	}
	n.grant, n.renew = pipeline("grant", grantLanes), pipeline("renew", replicatedRenewLanes)
	n.grant.replicas, n.renew.replicas = f.config.MinReplicas, f.config.MinReplicas
	return n
}

func (f *nodes) pipeline(name string, c *connector, lanes int) *pipeline {
	return newPipeline(name, c, f.config.StoreTimeout, &f.ids, lanes)
}

func (f *nodes) connector(a Address, greet greeting) *connector {
	c := &connector{
		address: a, username: f.config.Username, password: f.config.Password, db: f.config.DB,
		tls: f.config.TLS, timeout: f.config.StoreTimeout, greet: greet, lacks: f.lacks,
		now: f.config.Now, clock: &serverClock{}, log: f.config.Log,
	}
	c.era.Store(newEra())
	return c
}

func (n *node) pipelines() []*pipeline {
	all := []*pipeline{n.acquire, n.renew, n.release}
	if n.grant != n.acquire {
		all = append(all, n.grant)
	}
	return all
}

func (n *node) pipeline(to purpose) *pipeline {
	switch to {
	case toAcquire:
		return n.grant
	case toHandOver:
		if n.grant != n.acquire {
			return n.grant
		}
		return n.release
	case toRenew:
		return n.renew
	case toRelease:
		return n.release
	}
	return n.acquire
}

// connector opens the node's connections.
func (n *node) connector() *connector { return n.acquire.connector }

func (n *node) close() {
	for _, p := range n.pipelines() {
		p.close()
	}
}

// reading returns what an answer tells of the server's clock: what it reads, and
// by how much it has stepped since this was last asked.
func (n *node) reading(micros int64) locker.Reading {
	return locker.Reading{UnixMicro: micros, Step: n.clock.takeStep()}
}
