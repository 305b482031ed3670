package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker/redis"
)

// redisRules tells the documentation what checkRedis demands of several
// settings together.
var redisRules = []string{
	"User and password each come from one place: the setting, its _FILE, or, in single mode, the URL in REDIS_ADDRS. A user needs a password.",
	"REDIS_DB is not set if the URL in REDIS_ADDRS names a database, nor in cluster mode.",
	"In sentinel, cluster and redlock mode the addresses of REDIS_ADDRS have neither credentials nor a database, and no two are the same.",
	"REDIS_TLS does not contradict an address: rediss:// is TLS; redis:// and unix:// are not. It is for all connections, those to Sentinels too.",
	"REDIS_TLS_ settings need TLS; REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE need each other.",
	"SENTINEL_ settings need REDIS_MODE=sentinel.",
	"MAX_TTL is at most REDIS_RESTART_GUARD, unless that is off.",
	"REDIS_RESTART_GUARD is off in cluster mode: slots move between servers, and their locks with them.",
	"REDIS_NODE_TIMEOUT needs REDIS_MODE=redlock, and is at most half of STORE_TIMEOUT: a server that has not answered is asked again within that.",
	"REDIS_MIN_REPLICAS and REDIS_MODE=redlock exclude each other: there, the other servers are what holds a lock that one of them loses.",
	"REDIS_MODE=memory and any other REDIS_ or SENTINEL_ setting exclude each other.",
}

// checkRedis checks what leads to Redis, and takes over what stands in a URL.
func (c *checker) checkRedis() {
	if c.dev && c.given["REDIS_MODE"] && c.RedisMode != ModeMemory {
		c.warn("REDIS_MODE", "has no effect: locksidecar dev always uses memory")
	}
	if c.dev {
		c.RedisMode = ModeMemory
	}
	switch c.RedisMode {
	case ModeSingle, ModeSentinel, ModeCluster, ModeRedlock:
		c.checkAddresses()
		c.checkCredentials("REDIS")
		c.checkDB()
		c.checkNumber("REDIS_MIN_REPLICAS", c.RedisMinReplicas, 0, maxReplicas)
		c.checkTLS()
		c.checkSentinel()
		c.checkRedlock()
		c.checkGuard()
	case ModeMemory:
		c.checkUnused()
	default:
		if !c.broken["REDIS_MODE"] {
			c.mistake("REDIS_MODE", "%q is not one of %s", c.RedisMode, modesInWords)
		}
	}
}

var modesInWords = strings.Join([]string{string(ModeSingle), string(ModeSentinel), string(ModeCluster), string(ModeRedlock), string(ModeMemory)}, ", ")

// checkUnused finds Redis settings beside the memory backend. Whoever names a
// server believes that locks are shared, so it is a mistake, except in
// `locksidecar dev`, which says what it does.
func (c *checker) checkUnused() {
	for _, name := range settingNames() {
		if !c.given[name] || !strings.HasPrefix(name, "REDIS_") && !strings.HasPrefix(name, "SENTINEL_") || name == "REDIS_MODE" {
			continue
		}
		if c.dev {
			c.warn(name, "has no effect: locksidecar dev uses memory and no Redis")
		} else {
			c.mistake(name, "is set, but %s_REDIS_MODE=%s uses no Redis and shares no lock", envPrefix, ModeMemory)
		}
	}
}

func (c *checker) checkAddresses() {
	if c.broken["REDIS_ADDRS"] {
		return
	}
	if !c.given["REDIS_ADDRS"] {
		c.mistake("REDIS_ADDRS", "is not set; say where Redis is, as in redis:6379 (to try it without Redis: locksidecar dev)")
		return
	}
	if n := len(c.RedisAddrs); n != 1 && c.RedisMode == ModeSingle {
		c.mistake("REDIS_ADDRS", "names %d servers; %s_REDIS_MODE=%s takes exactly one", n, envPrefix, ModeSingle)
		return
	}
	if c.RedisMode == ModeRedlock && !c.checkNodeCount() {
		return
	}
	for i := range c.RedisAddrs {
		addr := &c.RedisAddrs[i]
		if addr.noPort && c.RedisMode == ModeSentinel {
			addr.Address = strings.TrimSuffix(addr.Address, defaultRedisPort) + defaultSentinelPort
		}
		if problem := addr.problemIn(c.RedisMode, c.RedisAddrs[:i]); problem != "" {
			c.mistake("REDIS_ADDRS", "%s", problem)
			c.broken["REDIS_ADDRS"] = true
			return
		}
	}
	c.checkSchemes()
}

// problemIn says why an address cannot be used in a mode, after others; empty if
// it can.
func (a RedisAddr) problemIn(mode RedisMode, before []RedisAddr) string {
	switch {
	case mode == ModeSingle:
		return ""
	case a.Network == "unix":
		return fmt.Sprintf("has a socket in the file system, which %s_REDIS_MODE=%s cannot use", envPrefix, mode)
	case a.username != "" || a.password.Reveal() != "":
		return fmt.Sprintf("has a URL with credentials; in %s_REDIS_MODE=%s they are settings of their own", envPrefix, mode)
	case a.database != "":
		return fmt.Sprintf("has a URL with a database; in %s_REDIS_MODE=%s only %s_REDIS_DB names it", envPrefix, mode, envPrefix)
	case slices.ContainsFunc(before, func(other RedisAddr) bool { return other.Address == a.Address }):
		return fmt.Sprintf("names %s twice", a.Address)
	}
	return ""
}

// checkSchemes holds the addresses and REDIS_TLS against each other.
func (c *checker) checkSchemes() {
	scheme := func(want string) bool {
		return slices.ContainsFunc(c.RedisAddrs, func(a RedisAddr) bool { return a.scheme == want })
	}
	switch {
	case scheme("rediss") && scheme("redis"):
		c.mistake("REDIS_ADDRS", "has redis:// and rediss:// URLs; TLS is for all of them or for none")
	case scheme("rediss") && c.given["REDIS_TLS"] && !c.RedisTLS && !c.broken["REDIS_TLS"]:
		c.mistake("REDIS_TLS", "is false, but the address begins with rediss://, which is TLS")
	case scheme("redis") && c.RedisTLS:
		c.mistake("REDIS_TLS", "is true, but the address begins with redis://, which is plain text; use rediss://")
	case scheme("unix") && c.RedisTLS:
		c.mistake("REDIS_TLS", "is true, but the address is a socket in the file system")
	case scheme("rediss"):
		c.RedisTLS = true
	}
}

// checkDB takes the database from the one place that gives it.
func (c *checker) checkDB() {
	c.checkNumber("REDIS_DB", c.RedisDB, 0, maxDatabase)
	switch {
	case c.RedisMode == ModeCluster && c.RedisDB != 0 && !c.broken["REDIS_DB"]:
		c.mistake("REDIS_DB", "is %d; a Redis Cluster has no databases", c.RedisDB)
	case c.RedisMode == ModeSingle && len(c.RedisAddrs) == 1 && c.RedisAddrs[0].database != "":
		if c.given["REDIS_DB"] {
			c.mistake("REDIS_DB", "is set, and the address names a database too; use one of them")
		}
		c.RedisDB, _ = strconv.Atoi(c.RedisAddrs[0].database)
	}
}

// checkSentinel checks what leads to Sentinels.
func (c *checker) checkSentinel() {
	if c.RedisMode != ModeSentinel {
		for _, name := range settingNames() {
			if strings.HasPrefix(name, "SENTINEL_") && c.given[name] {
				c.mistake(name, "is set, but %s_REDIS_MODE is %s, which asks no Sentinel", envPrefix, c.RedisMode)
			}
		}
		return
	}
	switch {
	case c.broken["SENTINEL_MASTER"]:
	case c.SentinelMaster == "":
		c.mistake("SENTINEL_MASTER", "is not set; say under which name the Sentinels watch the master, as in mymaster")
	case !plain(c.SentinelMaster):
		c.mistake("SENTINEL_MASTER", "%q has white space, a control character or invalid UTF-8 in it", c.SentinelMaster)
	}
	c.checkCredentials("SENTINEL")
}

// checkCredentials takes user and password from the one place that gives them.
// whose is REDIS or SENTINEL.
func (c *checker) checkCredentials(whose string) {
	user, userFile, password, passwordFile := &c.RedisUsername, c.RedisUsernameFile, &c.RedisPassword, c.RedisPasswordFile
	var fromURL RedisAddr
	if whose == "SENTINEL" {
		user, userFile, password, passwordFile = &c.SentinelUsername, c.SentinelUsernameFile, &c.SentinelPassword, c.SentinelPasswordFile
	} else if len(c.RedisAddrs) == 1 && c.RedisMode == ModeSingle {
		fromURL = c.RedisAddrs[0]
	}
	c.checkOneSource(whose+"_USERNAME", userFile, fromURL.username != "")
	c.checkOneSource(whose+"_PASSWORD", passwordFile, fromURL.password.Reveal() != "")
	if fromURL.username != "" {
		*user = fromURL.username
	}
	if fromURL.password.Reveal() != "" {
		*password = fromURL.password
	}
	hasPassword := password.Reveal() != "" || passwordFile != "" ||
		c.broken[whose+"_PASSWORD"] || c.broken[whose+"_PASSWORD_FILE"]
	if (*user != "" || userFile != "") && !hasPassword {
		c.mistake(whose+"_PASSWORD", "is not set, but a user is; Redis takes no user without a password")
	}
}

// checkOneSource demands that a text comes from the variable, the file or the
// URL, and that the file can be read.
func (c *checker) checkOneSource(name string, file FilePath, inURL bool) {
	var sources []string
	if c.given[name] {
		sources = append(sources, envPrefix+"_"+name)
	}
	if c.given[name+"_FILE"] {
		sources = append(sources, envPrefix+"_"+name+"_FILE")
	}
	if inURL {
		sources = append(sources, "the URL in "+envPrefix+"_REDIS_ADDRS")
	}
	if len(sources) > 1 {
		c.mistake(name, "is given %d times, by %s; use one of them", len(sources), strings.Join(sources, " and "))
	}
	if file != "" {
		if _, err := file.ReadSecret(); err != nil {
			c.mistake(name+"_FILE", "cannot be used: %v", err)
		}
	}
}

// Topology names the servers, without credentials and database: two sidecars
// with the same topology, database and prefix exclude each other.
func (s *Settings) Topology() string {
	words := []string{string(s.RedisMode)}
	if s.SentinelMaster != "" {
		words = append(words, s.SentinelMaster)
	}
	addrs := s.RedisAddrs.Strings()
	slices.Sort(addrs) // in which order they are listed makes no difference
	if len(addrs) > 0 {
		words = append(words, strings.Join(addrs, ","))
	}
	return strings.Join(words, " ")
}

// redisKind says what the addresses lead to.
func (s *Settings) redisKind() redis.Kind {
	switch s.RedisMode {
	case ModeSentinel:
		return redis.Sentinel
	case ModeCluster:
		return redis.Cluster
	}
	return redis.Single
}
