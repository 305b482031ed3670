package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestWhatIsNoLockIsNeitherSightedNorBroken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	name := b.keys.lock(testKey)
	for what, put := range map[string][]any{
		"a list":           {"RPUSH", name, "x"},
		"without a TTL":    {"SET", name, "x"},
		"longer than ours": {"SET", name, strings.Repeat("x", 2000), "PX", 60000},
		"empty":            {"SET", name, "", "PX", 60000},
	} {
		server.Do("DEL", name)
		server.Do(put...)
		before := server.Do("DUMP", name)
		if s, err := b.Sight(t.Context(), testKey); !errors.Is(err, locker.ErrKeyConflict) {
			t.Errorf("%s: sighted as %q, error %v", what, s.State, err)
		}
		if _, err := b.Break(t.Context(), locker.Breach{Key: testKey, Token: locker.TokenFromStore("x")}); err == nil {
			t.Errorf("%s: was broken", what)
		}
		if server.Do("DUMP", name) != before {
			t.Errorf("%s: was changed", what)
		}
	}
}

func TestAServerThatTakesNoWritesBreaksNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	var store *locker.StoreError
	_, err := b.Break(t.Context(), locker.Breach{Key: testKey, Token: c.Token})
	if !errors.As(err, &store) || store.Reason != locker.StoreWriteRefused || !store.Certain {
		t.Errorf("error %v", err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("the holder: %v", err)
	}
}

// What a replica has to say is old.
func TestAReplicaBreaksNothingWhateverIsThere(t *testing.T) {
	t.Parallel()
	master, server := redistest.Start(t), redistest.Start(t)
	b := open(t, server, Config{})
	name := b.keys.lock(testKey)
	c := claimFor(testKey)
	for what, put := range map[string][]any{
		"the token":       {"SET", name, c.Token.Reveal(), "PX", 60000},
		"the tombstone":   {"SET", name, locker.Tombstone("", locker.TombstoneBroken), "PX", 60000},
		"another's token": {"SET", name, "x", "PX", 60000},
		"what has no TTL": {"SET", name, "x"},
		"a list":          {"RPUSH", name, "x"},
		"nothing at all":  {"PING"},
	} {
		server.Do("REPLICAOF", "NO", "ONE")
		server.Do("FLUSHALL")
		server.Do(put...)
		host, port, _ := strings.Cut(master.Addr(), ":")
		server.Do("CONFIG", "SET", "replica-serve-stale-data", "yes")
		master.Stop() // so that it does not replace what the replica has
		server.Do("REPLICAOF", host, port)
		_, err := b.Break(t.Context(), locker.Breach{Key: testKey, Token: c.Token})
		var store *locker.StoreError
		if !errors.As(err, &store) || !store.Certain {
			t.Errorf("%s: error %v", what, err)
		}
		master.Cont()
	}
}
