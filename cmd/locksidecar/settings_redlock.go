package main

import "time"

const (
	leastNodes = 3
	mostNodes  = 15

	leastNodeTimeout = 5 * time.Millisecond
)

// checkNodeCount demands so many servers that no vote of theirs is tied.
func (c *checker) checkNodeCount() (ok bool) {
	switch n := len(c.RedisAddrs); {
	case n < leastNodes || n > mostNodes:
		c.mistake("REDIS_ADDRS", "names %d servers; %s_REDIS_MODE=%s takes an odd number from %d to %d", n, envPrefix, ModeRedlock, leastNodes, mostNodes)
	case n%2 == 0:
		c.mistake("REDIS_ADDRS", "names %d servers; %s_REDIS_MODE=%s takes an odd number, as %d bear the loss of no more of them than %d",
			n, envPrefix, ModeRedlock, n, n-1)
	default:
		return true
	}
	return false
}

// checkRedlock checks what only a majority of servers needs, and sets its
// defaults.
func (c *checker) checkRedlock() {
	if c.RedisMode != ModeRedlock {
		if c.given["REDIS_NODE_TIMEOUT"] {
			c.mistake("REDIS_NODE_TIMEOUT", "is set, but %s_REDIS_MODE is %s, which has one store; its time is %s_STORE_TIMEOUT", envPrefix, c.RedisMode, envPrefix)
		}
		return
	}
	if c.RedisMinReplicas != 0 && !c.broken["REDIS_MIN_REPLICAS"] {
		c.mistake("REDIS_MIN_REPLICAS", "is set, but %s_REDIS_MODE=%s rests on independent servers; more of them do what replicas would", envPrefix, ModeRedlock)
	}
	if c.broken["REDIS_NODE_TIMEOUT"] || c.broken["STORE_TIMEOUT"] {
		return
	}
	if !c.given["REDIS_NODE_TIMEOUT"] {
		c.RedisNodeTimeout = c.StoreTimeout / 2
		return
	}
	c.checkDuration("REDIS_NODE_TIMEOUT", c.RedisNodeTimeout, leastNodeTimeout, longest)
	if !c.broken["REDIS_NODE_TIMEOUT"] && 2*c.RedisNodeTimeout > c.StoreTimeout {
		c.mistake("REDIS_NODE_TIMEOUT", "%s is too long; a server that has not answered must be asked again within %s_STORE_TIMEOUT, which is %s, so at most %s",
			c.RedisNodeTimeout, envPrefix, c.StoreTimeout, c.StoreTimeout/2)
	}
}
