package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	leastTTL     = time.Second
	longest      = 8760 * time.Hour // a year; more is a mix-up of units
	leastTimeout = 10 * time.Millisecond

	maxMetricKeys  = 50
	maxReplicas    = 16
	maxDatabase    = 1<<31 - 1
	maxPrefixBytes = 128
	maxHolderBytes = 63 + 1 + 253 // a namespace, a slash and a pod's name, as Kubernetes allows them

	shortToken = 16 // characters; a shorter API token can be guessed
)

// check checks every setting by itself and against the others. hostname is
// the last resort for the holder's label.
func (c *checker) check(hostname string) {
	c.checkRedis()
	c.checkPrefix()
	c.checkHolder(hostname)
	c.checkDuration("STORE_TIMEOUT", c.StoreTimeout, leastTimeout, longest)
	c.checkDuration("DEFAULT_TTL", c.DefaultTTL, leastTTL, longest)
	c.checkDuration("MAX_TTL", c.MaxTTL, leastTTL, longest)
	c.checkDuration("DEFAULT_MAX_HOLD", c.DefaultMaxHold, 0, longest)
	c.checkDuration("MAX_WAIT", c.MaxWait, 0, longest)
	c.checkDuration("SHUTDOWN_GRACE", c.ShutdownGrace, 0, longest)
	c.checkNumber("MAX_HELD", c.MaxHeld, 1, 1_000_000)
	c.checkNumber("MAX_WAITERS", c.MaxWaiters, 1, 100_000)
	c.checkWord("SHUTDOWN_MODE", string(c.ShutdownMode), string(locker.ModeDrop), string(locker.ModeGuarded), string(locker.ModeRelease))
	c.checkWord("LOG_FORMAT", string(c.LogFormat), string(LogJSON), string(LogText))
	c.checkMetricKeys()
	c.checkAPIToken()
	c.checkStateDir()
	for _, r := range relations {
		c.checkRelation(r)
	}
}

func (c *checker) checkDuration(name string, d, least, most time.Duration) {
	if !c.broken[name] && (d < least || d > most) {
		c.mistake(name, "%s is out of range; it must be from %s to %s", d, least, most)
		c.broken[name] = true // relations would only say it again
	}
}

func (c *checker) checkNumber(name string, n, least, most int) {
	if !c.broken[name] && (n < least || n > most) {
		c.mistake(name, "%d is out of range; it must be from %d to %d", n, least, most)
	}
}

func (c *checker) checkWord(name, word string, allowed ...string) {
	if !c.broken[name] && !slices.Contains(allowed, word) {
		c.mistake(name, "%q is not one of %s", word, strings.Join(allowed, ", "))
	}
}

// globOrBrace are characters that would make a pattern of the prefix in an
// ACL rule or SCAN, or a hash tag of it in a Redis Cluster.
const globOrBrace = `{}*?[]\^`

func (c *checker) checkPrefix() {
	prefix := c.KeyPrefix
	switch i := strings.IndexAny(prefix, globOrBrace); {
	case i >= 0:
		c.mistake("KEY_PREFIX", "has the character %q; braces and glob characters are not allowed", prefix[i])
	case strings.HasPrefix(prefix, "#"):
		c.mistake("KEY_PREFIX", "begins with #, which is reserved")
	case len(prefix) > maxPrefixBytes:
		c.mistake("KEY_PREFIX", "has %d bytes; at most %d are allowed", len(prefix), maxPrefixBytes)
	case !plain(prefix):
		c.mistake("KEY_PREFIX", "%q has white space, a control character or invalid UTF-8 in it", prefix)
	}
}

// plain tells whether s is valid UTF-8 without white space and control
// characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

func (c *checker) checkHolder(hostname string) {
	if c.broken["HOLDER"] {
		return
	}
	if c.Holder == "" {
		c.Holder = hostname
		if namespace, pod := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"); namespace != "" && pod != "" {
			c.Holder = namespace + "/" + pod
		}
	}
	switch {
	case c.Holder == "":
		c.mistake("HOLDER", "must be set, as this machine has no host name")
	case len(c.Holder) > maxHolderBytes:
		c.mistake("HOLDER", "has %d bytes; at most %d are allowed", len(c.Holder), maxHolderBytes)
	case !plain(c.Holder):
		c.mistake("HOLDER", "%q has white space, a control character or invalid UTF-8 in it", c.Holder)
	}
}

func (c *checker) checkMetricKeys() {
	if len(c.MetricKeys) > maxMetricKeys {
		c.mistake("METRIC_KEYS", "names %d keys; at most %d are allowed", len(c.MetricKeys), maxMetricKeys)
		return
	}
	for i, key := range c.MetricKeys {
		if slices.Contains(c.MetricKeys[:i], key) {
			c.mistake("METRIC_KEYS", "names %q twice", key)
		}
	}
}

func (c *checker) checkAPIToken() {
	if c.APITokenFile == "" {
		return
	}
	token, err := c.APITokenFile.ReadSecret()
	if err != nil {
		c.mistake("API_TOKEN_FILE", "cannot be used: %v", err)
		return
	}
	if !headerSafe(token.Reveal()) {
		c.mistake("API_TOKEN_FILE", "holds something that does not fit into an Authorization header; use printable ASCII without spaces")
	} else if n := len(token.Reveal()); n < shortToken {
		c.warn("API_TOKEN_FILE", "holds a token of %d characters, which can be guessed; use at least %d", n, shortToken)
	}
}

// checkStateDir looks whether there is such a directory. Whether it can be used
// shows when it is opened.
func (c *checker) checkStateDir() {
	if c.StateDir == "" || c.broken["STATE_DIR"] {
		return
	}
	if c.dev {
		c.warn("STATE_DIR", "has no effect: what locksidecar dev keeps in memory ends with it")
		c.StateDir = ""
		return
	}
	if c.RedisMode == ModeMemory {
		c.mistake("STATE_DIR", "is set, but the locks of %s_REDIS_MODE=%s end with the process, so there is nothing to take up again", envPrefix, ModeMemory)
		return
	}
	info, err := os.Stat(string(c.StateDir))
	switch {
	case !filepath.IsAbs(string(c.StateDir)):
		c.mistake("STATE_DIR", "%q is not an absolute path", string(c.StateDir))
	case errors.Is(err, fs.ErrNotExist):
		c.mistake("STATE_DIR", "%s does not exist; mount a memory-backed volume there", c.StateDir)
	case err != nil:
		c.mistake("STATE_DIR", "cannot be used: %v", err)
	case !info.IsDir():
		c.mistake("STATE_DIR", "%s is not a directory", c.StateDir)
	}
}

// headerSafe tells whether a client can send s as a bearer token.
func headerSafe(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
