package redis

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestTheBackendConforms(t *testing.T) {
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		server := redistest.Start(t)
		b := open(t, server, Config{})
		key := func(k locker.Key) string { return b.keys.lock(k) }
		return lockertest.Harness{
			Backend:      b,
			Now:          locker.BootTime,
			CurrentValue: func(k locker.Key) (string, bool) { return server.Get(key(k)) },
			PTTL:         func(k locker.Key) time.Duration { return max(0, server.PTTL(key(k))) },
			Put: func(k locker.Key, value string, ttl time.Duration) {
				if ttl == 0 {
					server.Do("SET", key(k), value)
					return
				}
				server.Do("SET", key(k), value, "PX", ttl.Milliseconds())
			},
			Delete: func(k locker.Key) { server.Do("DEL", key(k)) },
			Wipe:   func() { server.Do("FLUSHALL") },
		}
	})
}
