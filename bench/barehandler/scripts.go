package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The layout is the sidecar's under another prefix of the same length, so that
// both can be measured on one server.
const (
	lockPrefix = "bare:"
	companion  = "bare:#grant:{" // then the lock's key and a brace
)

// scripts are the very files that the sidecar embeds; their first lines list
// their keys, arguments and replies.
type scripts struct{ acquire, release *redis.Script }

func readScripts(dir string) (s scripts, err error) {
	for name, into := range map[string]**redis.Script{"acquire.lua": &s.acquire, "release.lua": &s.release} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return s, err
		}
		*into = redis.NewScript(string(text))
	}
	return s, nil
}

const (
	call     = "1"                // identifies a call; nobody asks here
	floor    = "0"                // no least fencing token
	notAfter = "9007199254740991" // never too late
	outlives = "300000"           // ms by which the record outlives the lock
)

func (s scripts) acquireLock(ctx context.Context, rdb *redis.Client, key, token string, ttl time.Duration) (fence int64, err error) {
	reply, err := s.acquire.Run(ctx, rdb, []string{lockPrefix + key, companion + lockPrefix + key + "}"},
		call, token, ttl.Milliseconds(), floor, notAfter, "", outlives).StringSlice()
	if err != nil {
		return 0, err
	}
	if len(reply) != 4 || reply[2] != "granted" {
		return 0, fmt.Errorf("not granted: %q", reply[2:])
	}
	return strconv.ParseInt(reply[3], 10, 64)
}

func (s scripts) releaseLock(ctx context.Context, rdb *redis.Client, key, token string) error {
	reply, err := s.release.Run(ctx, rdb, []string{lockPrefix + key},
		call, companion, outlives, token, "0", "").StringSlice()
	if err != nil {
		return err
	}
	if len(reply) != 3 || reply[2] != "ok" {
		return fmt.Errorf("not released: %q", reply[2:])
	}
	return nil
}
