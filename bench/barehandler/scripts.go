package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	lockredis "github.com/locksidecar/locksidecar/internal/locker/redis"
)

// The layout is the sidecar's under another prefix of the same length, so that
// both can be measured on one server.
const prefix = "bare:"

// The very scripts that the sidecar sends; the first lines of their files list
// their keys, arguments and replies.
var (
	acquire = redis.NewScript(lockredis.Scripts()["acquire"])
	release = redis.NewScript(lockredis.Scripts()["release"])
)

const (
	call     = "1"                // identifies a call; nobody asks here
	floor    = "0"                // no least fencing token
	notAfter = "9007199254740991" // never too late
	outlives = "300000"           // ms by which the record outlives the lock
	guard    = ""                 // none
	process  = ""                 // nobody waits
)

func acquireLock(ctx context.Context, rdb *redis.Client, key, token string, ttl time.Duration) (fence int64, err error) {
	reply, err := acquire.Run(ctx, rdb, []string{prefix + key},
		call, prefix, token, ttl.Milliseconds(), floor, notAfter, "", outlives, guard, process).StringSlice()
	if err != nil {
		return 0, err
	}
	if len(reply) != 5 || reply[2] != "granted" {
		return 0, fmt.Errorf("not granted: %q", reply[2:])
	}
	return strconv.ParseInt(reply[3], 10, 64)
}

func releaseLock(ctx context.Context, rdb *redis.Client, key, token string) error {
	reply, err := release.Run(ctx, rdb, []string{prefix + key},
		call, prefix, outlives, token, "0", "").StringSlice()
	if err != nil {
		return err
	}
	if len(reply) != 3 || reply[2] != "ok" {
		return fmt.Errorf("not released: %q", reply[2:])
	}
	return nil
}
