package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// relation is a rule that several settings keep together.
type relation struct {
	of   []string // names, without the prefix; the first is blamed
	rule string   // for the documentation
	// broken says what is wrong, or nothing.
	broken func(s *Settings) string
}

// dropTime is how long giving back the most locks takes at shutdown, and
// shutdownTime how long everybody has when a pod's grace period has run out:
// the kubelet then sends SIGTERM, and SIGKILL two seconds later.
const (
	dropTime     = 500 * time.Millisecond
	shutdownTime = 2 * time.Second
)

var relations = []relation{
	{
		of:   []string{"STORE_TIMEOUT"},
		rule: "Three times STORE_TIMEOUT is at most 1s, the least TTL: a renewal is due after a third of the lease and must have the time to be tried twice before the lease ends.",
		broken: func(s *Settings) string {
			if 3*s.StoreTimeout <= leastTTL {
				return ""
			}
			return fmt.Sprintf("%s is too long; three times it must fit into %s, the least TTL, so at most %s: a renewal is due after a third of the lease and must have the time to be tried twice",
				s.StoreTimeout, leastTTL, (leastTTL / 3).Truncate(time.Millisecond))
		},
	},
	{
		of:   []string{"DEFAULT_TTL", "MAX_TTL"},
		rule: "DEFAULT_TTL is at most MAX_TTL.",
		broken: func(s *Settings) string {
			if s.DefaultTTL <= s.MaxTTL {
				return ""
			}
			return fmt.Sprintf("%s is above %s_MAX_TTL, which is %s", s.DefaultTTL, envPrefix, s.MaxTTL)
		},
	},
	{
		of:   []string{"DEFAULT_MAX_HOLD", "DEFAULT_TTL"},
		rule: "DEFAULT_MAX_HOLD, if set, is at least DEFAULT_TTL.",
		broken: func(s *Settings) string {
			if s.DefaultMaxHold <= 0 || s.DefaultMaxHold >= s.DefaultTTL {
				return ""
			}
			return fmt.Sprintf("%s is below %s_DEFAULT_TTL, which is %s: no default lock could last its first lease", s.DefaultMaxHold, envPrefix, s.DefaultTTL)
		},
	},
	{
		of:   []string{"SHUTDOWN_GRACE", "SHUTDOWN_MODE"},
		rule: "SHUTDOWN_GRACE is at most 1500ms with SHUTDOWN_MODE drop and guarded: Kubernetes leaves 2s once the pod's grace period has run out, and giving back the locks needs the rest.",
		broken: func(s *Settings) string {
			if s.ShutdownMode != locker.ModeDrop && s.ShutdownMode != locker.ModeGuarded || s.ShutdownGrace <= shutdownTime-dropTime {
				return ""
			}
			return fmt.Sprintf("%s is too long for %s_SHUTDOWN_MODE=%s; at most %s, as Kubernetes leaves %s once the pod's grace period has run out and giving back the locks needs the rest",
				s.ShutdownGrace, envPrefix, s.ShutdownMode, shutdownTime-dropTime, shutdownTime)
		},
	},
	{
		of:   []string{"LISTEN", "API_TOKEN_FILE"},
		rule: "LISTEN on an address that others can reach needs API_TOKEN_FILE.",
		broken: func(s *Settings) string {
			i := slices.IndexFunc(s.Listen, func(a ListenAddr) bool { return !a.Local() })
			if i < 0 || s.APITokenFile != "" {
				return ""
			}
			return fmt.Sprintf("%s can be reached from outside the pod; set %s_API_TOKEN_FILE, or listen on a loopback address", s.Listen[i], envPrefix)
		},
	},
	{
		of:   []string{"LISTEN"},
		rule: "No two addresses of LISTEN are the same.",
		broken: func(s *Settings) string {
			for i, a := range s.Listen {
				if slices.ContainsFunc(s.Listen[:i], a.collides) {
					return fmt.Sprintf("%s is taken by an earlier element", a)
				}
			}
			return ""
		},
	},
	{
		of:   []string{"ADMIN_LISTEN", "LISTEN"},
		rule: "ADMIN_LISTEN is no address of LISTEN.",
		broken: func(s *Settings) string {
			if !slices.ContainsFunc(s.Listen, s.AdminListen.collides) {
				return ""
			}
			return fmt.Sprintf("%s is taken by %s_LISTEN; give it another port", s.AdminListen, envPrefix)
		},
	},
}

// checkRelation applies a rule unless one of its settings is wrong by itself.
func (c *checker) checkRelation(r relation) {
	if slices.ContainsFunc(r.of, func(name string) bool { return c.broken[name] }) {
		return
	}
	if problem := r.broken(&c.Settings); problem != "" {
		c.mistake(r.of[0], "%s", problem)
	}
}
