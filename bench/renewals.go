package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// lockPrefix is the sidecar's default key prefix.
const lockPrefix = "lock:"

// renewalWatch finds out when locks were renewed from when their keys expire:
// every renewal moves the expiry to a TTL after itself. So a look every few
// seconds costs Redis next to nothing and is still exact to the millisecond.
type renewalWatch struct {
	keys    []string
	ttl     time.Duration
	renewed []time.Time   // when each was last granted or renewed, by Redis' clock
	latest  time.Duration // the worst renewal so far, counted from when it was due
}

func newRenewalWatch(keys []string, ttl time.Duration) *renewalWatch {
	return &renewalWatch{keys: keys, ttl: ttl, renewed: make([]time.Time, len(keys))}
}

// look must be called more often than locks are renewed, or a renewal between
// two looks goes unseen and the next one seems late.
func (w *renewalWatch) look(ctx context.Context, store *redisServer) error {
	now, err := store.admin.Time(ctx).Result()
	if err != nil {
		return err
	}
	pipe := store.admin.Pipeline()
	answers := make([]*redis.DurationCmd, len(w.keys))
	for i, key := range w.keys {
		answers[i] = pipe.PExpireTime(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i, answer := range answers {
		sinceEpoch := answer.Val()
		if sinceEpoch < 0 {
			return fmt.Errorf("%s is gone, or does not expire", w.keys[i])
		}
		w.saw(i, time.UnixMilli(sinceEpoch.Milliseconds()), now)
	}
	return nil
}

// saw takes what a look found: key i expires at that time.
func (w *renewalWatch) saw(i int, expires, now time.Time) {
	renewed := expires.Add(-w.ttl)
	previous := w.renewed[i]
	w.renewed[i] = renewed
	if previous.IsZero() {
		return
	}
	due := previous.Add(w.ttl / 3)
	if renewed.Equal(previous) {
		w.latest = max(w.latest, now.Sub(due)) // not renewed yet
		return
	}
	w.latest = max(w.latest, renewed.Sub(due))
}
