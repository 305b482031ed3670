package redis

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestTheBackendConforms(t *testing.T) {
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		server := redistest.Start(t)
		permit(t, []*redistest.Server{server}, "single")
		t.Cleanup(func() { wantNothingDenied(t, []*redistest.Server{server}) })
		h := harness(open(t, server, asUser(Config{})), func(string) *redistest.Server { return server }, server)
		h.Wipe = func() { server.Do("FLUSHALL") }
		return h
	})
}

func TestTheBackendConformsBehindSentinels(t *testing.T) {
	s := redistest.SentinelConfig{Replicas: 1}.StartSentinel(t)
	permit(t, s.Servers, "sentinel")
	permit(t, s.Sentinels, "at-sentinels")
	master := s.Master()
	defer wantNothingDenied(t, slices.Concat(s.Servers, s.Sentinels))
	conform(t, func(t *testing.T, config Config) *Backend {
		config.Kind = Sentinel
		return openSentinel(t, s, asUser(config))
	},
		func(string) *redistest.Server { return master }, master)
}

// asUser has a configuration use our user, whose permissions are the least ones.
func asUser(config Config) Config {
	config.Username, config.Password = value(user), value(password)
	if config.Kind == Sentinel {
		config.SentinelUsername, config.SentinelPassword = config.Username, config.Password
	}
	return config
}

// conform runs the suite on servers that its cases share. Each has a prefix of
// its own.
func conform(t *testing.T, open func(*testing.T, Config) *Backend, holder func(name string) *redistest.Server, all ...*redistest.Server) {
	var cases atomic.Int64
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		prefix := "lock:case" + strconv.FormatInt(cases.Add(1), 10) + ":"
		b := open(t, asUser(Config{KeyPrefix: prefix}))
		eventually(t, "the servers are found", func() bool { return b.Ping(t.Context()) == nil && b.Warm(t.Context()) == nil })
		return harness(b, holder, all...)
	})
}

// harness reaches into the store behind a backend: into the server that has a
// name, or into all of them.
func harness(b *Backend, holder func(name string) *redistest.Server, all ...*redistest.Server) lockertest.Harness {
	at := func(k locker.Key) (*redistest.Server, string) {
		name := b.keys.lock(k)
		return holder(name), name
	}
	return lockertest.Harness{
		Backend: b,
		Now:     locker.BootTime,
		Figures: map[Kind]figures.Column{Single: figures.Single, Sentinel: figures.Sentinel, Cluster: figures.Cluster}[b.kind],
		CurrentValue: func(k locker.Key) (string, bool) {
			server, name := at(k)
			return server.Get(name)
		},
		PTTL: func(k locker.Key) time.Duration {
			server, name := at(k)
			return max(0, server.PTTL(name))
		},
		Put: func(k locker.Key, value string, ttl time.Duration) {
			server, name := at(k)
			if ttl == 0 {
				server.Do("SET", name, value)
				return
			}
			server.Do("SET", name, value, "PX", ttl.Milliseconds())
		},
		Delete: func(k locker.Key) {
			server, name := at(k)
			server.Do("DEL", name)
		},
		Wipe: func() {
			for _, server := range all {
				for _, name := range server.Keys(b.keys.prefix + "*") {
					server.Do("DEL", name)
				}
			}
		},
	}
}
