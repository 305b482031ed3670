package main

import "time"

// quorumGuard is the restart guard of servers of which a majority decides. They
// are mostly without persistence, and one that has forgotten its vote gives it
// to another.
const quorumGuard = time.Minute

// checkGuard checks the restart guard, and has no lease outlast it.
func (c *checker) checkGuard() {
	if c.broken["REDIS_RESTART_GUARD"] {
		return
	}
	switch {
	case c.RedisMode == ModeCluster && c.RedisRestartGuard != 0:
		c.mistake("REDIS_RESTART_GUARD", "is set, but the servers of %s_REDIS_MODE=%s cannot be guarded: slots move between them, and their locks with them", envPrefix, ModeCluster)
		return
	case c.RedisMode == ModeRedlock && !c.given["REDIS_RESTART_GUARD"]:
		c.RedisRestartGuard = quorumGuard
	case c.RedisMode == ModeRedlock && c.RedisRestartGuard == 0:
		c.warn("REDIS_RESTART_GUARD", "is off: a server that is started again without its data votes at once for another holder, and two can have a lock")
	}
	if c.RedisRestartGuard == 0 {
		return
	}
	c.checkDuration("REDIS_RESTART_GUARD", c.RedisRestartGuard, leastTTL, longest)
	switch {
	case c.broken["REDIS_RESTART_GUARD"] || c.broken["MAX_TTL"]:
	case !c.given["MAX_TTL"]:
		c.MaxTTL = min(c.MaxTTL, c.RedisRestartGuard)
	case c.MaxTTL > c.RedisRestartGuard:
		c.mistake("MAX_TTL", "%s is above %s_REDIS_RESTART_GUARD, which is %s: a server that has lost a lock would grant it anew before its lease could be over",
			c.MaxTTL, envPrefix, c.RedisRestartGuard)
	}
}
