package main

import (
	"strconv"
	"strings"
)

// redisRules tells the documentation what checkRedis demands of several
// settings together.
var redisRules = []string{
	"User and password each come from one place: the setting, its _FILE, or the URL in REDIS_ADDRS. A user needs a password.",
	"REDIS_DB is not set if the URL in REDIS_ADDRS names a database.",
	"REDIS_TLS does not contradict the address: rediss:// is TLS; redis:// and unix:// are not.",
	"REDIS_TLS_ settings need TLS; REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE need each other.",
	"REDIS_MODE=memory and any other REDIS_ setting exclude each other.",
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
	case ModeSingle:
		c.checkAddress()
		c.checkCredentials()
		c.checkNumber("REDIS_DB", c.RedisDB, 0, 1<<31-1)
		c.checkTLS()
	case ModeMemory:
		c.checkUnused()
	case "sentinel", "cluster", "redlock":
		c.mistake("REDIS_MODE", "%s is not in this version yet; it has %s and %s", c.RedisMode, ModeSingle, ModeMemory)
	default:
		if !c.broken["REDIS_MODE"] {
			c.mistake("REDIS_MODE", "%q is not one of %s, %s", c.RedisMode, ModeSingle, ModeMemory)
		}
	}
}

// checkUnused finds Redis settings beside the memory backend. Whoever names a
// server believes that locks are shared, so it is a mistake, except in
// `locksidecar dev`, which says what it does.
func (c *checker) checkUnused() {
	for _, name := range settingNames() {
		if !c.given[name] || !strings.HasPrefix(name, "REDIS_") || name == "REDIS_MODE" {
			continue
		}
		if c.dev {
			c.warn(name, "has no effect: locksidecar dev uses memory and no Redis")
		} else {
			c.mistake(name, "is set, but %s_REDIS_MODE=%s uses no Redis and shares no lock", envPrefix, ModeMemory)
		}
	}
}

func (c *checker) checkAddress() {
	if c.broken["REDIS_ADDRS"] {
		return
	}
	if !c.given["REDIS_ADDRS"] {
		c.mistake("REDIS_ADDRS", "is not set; say where Redis is, as in redis:6379 (to try it without Redis: locksidecar dev)")
		return
	}
	if n := len(c.RedisAddrs); n != 1 {
		c.mistake("REDIS_ADDRS", "names %d servers; %s_REDIS_MODE=%s takes exactly one", n, envPrefix, ModeSingle)
		return
	}
	addr := c.RedisAddrs[0]
	switch {
	case addr.scheme == "rediss" && c.given["REDIS_TLS"] && !c.RedisTLS && !c.broken["REDIS_TLS"]:
		c.mistake("REDIS_TLS", "is false, but the address begins with rediss://, which is TLS")
	case addr.scheme == "redis" && c.RedisTLS:
		c.mistake("REDIS_TLS", "is true, but the address begins with redis://, which is plain text; use rediss://")
	case addr.Network == "unix" && c.RedisTLS:
		c.mistake("REDIS_TLS", "is true, but the address is a socket in the file system")
	case addr.scheme == "rediss":
		c.RedisTLS = true
	}
	if addr.database != "" {
		if c.given["REDIS_DB"] {
			c.mistake("REDIS_DB", "is set, and the address names a database too; use one of them")
		}
		c.RedisDB, _ = strconv.Atoi(addr.database)
	}
}

// checkCredentials takes user and password from the one place that gives
// them.
func (c *checker) checkCredentials() {
	var fromURL RedisAddr
	if len(c.RedisAddrs) == 1 {
		fromURL = c.RedisAddrs[0]
	}
	c.checkOneSource("REDIS_USERNAME", c.RedisUsernameFile, fromURL.username != "")
	c.checkOneSource("REDIS_PASSWORD", c.RedisPasswordFile, fromURL.password.Reveal() != "")
	if fromURL.username != "" {
		c.RedisUsername = fromURL.username
	}
	if fromURL.password.Reveal() != "" {
		c.RedisPassword = fromURL.password
	}
	user := c.RedisUsername != "" || c.RedisUsernameFile != ""
	password := c.RedisPassword.Reveal() != "" || c.RedisPasswordFile != "" ||
		c.broken["REDIS_PASSWORD"] || c.broken["REDIS_PASSWORD_FILE"]
	if user && !password {
		c.mistake("REDIS_PASSWORD", "is not set, but a user is; Redis takes no user without a password")
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

// Topology names the server, without credentials and database: two sidecars
// with the same topology, database and prefix exclude each other.
func (s *Settings) Topology() string {
	return strings.TrimSpace(string(s.RedisMode) + " " + strings.Join(s.RedisAddrs.Strings(), ","))
}
