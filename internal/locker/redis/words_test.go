package redis

import (
	"strconv"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// wordsOf62 has a script see the errors that the server itself raises as Redis
// 6.2 words them: with where they arose in front.
const wordsOf62 = `local redis = setmetatable({pcall = function(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and string.find(reply.err, '^%u+ ') and not string.find(reply.err, '^WRONGTYPE') then
    reply = {err = '@user_script: 12: -' .. string.gsub(reply.err, ' script: .*$', '') .. '\r\n'}
  end
  return reply
end}, {__index = redis})
`

func in62(s *script) *script {
	return &script{source: wordsOf62 + s.source, sha: "no script has this name"}
}

func TestErrorsWithinScriptsAreUnderstoodAsRedis62WordsThem(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	held := claimFor("with-min-hold")
	mustAcquire(t, b, held)
	send := func(to purpose, s *script, key locker.Key, args ...string) (*call, error) {
		c := &call{script: in62(s), keys: []string{b.keys.lock(key)}}
		c.args = func(func(locker.Instant) string) []string { return append([]string{b.keys.prefix}, args...) }
		ctx, cancel := b.bounded(t.Context())
		defer cancel()
		return c, b.send(ctx, to, c)
	}
	acquire := func() error {
		far := func(locker.Instant) string { return strconv.FormatInt(maxMicros, 10) }
		_, err := send(toAcquire, acquireScript, "another", claimArgs(claimFor("another"), nil, far, "")...)
		return err
	}

	server.Do("CONFIG", "SET", "maxmemory", "1")
	wantStoreError(t, "acquire without memory", acquire(), locker.StoreWriteRefused, true)
	s := surrenderOf(held)
	s.Keep = 20 * time.Second
	c, err := send(toRelease, releaseScript, held.Key, append([]string{millis(recordOutlives)}, surrenderArgs(s)...)...)
	if err == nil {
		err = c.verdict(0)
	}
	if err != nil {
		t.Errorf("release with a minimum hold without memory: %v", err)
	}
	if left := server.PTTL(b.keys.lock(held.Key)); left <= 0 || left > s.Keep {
		t.Errorf("the key stays taken for %v, want %v", left, s.Keep)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")

	server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	wantStoreError(t, "acquire without replicas", acquire(), locker.StoreWriteRefused, true)
	server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	demote(server)
	wantStoreError(t, "acquire at a replica", acquire(), locker.StoreUnavailable, true)
}
