package main

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The peers are libraries. Each has one client object with its default pool,
// as an application would, which all its workers share.
//
// Clients of a subject that waits do so as the library does by itself or, if it
// leaves that to the caller, as its documentation shows.

func newGoRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// rawSubject is what people write by hand: SET NX PX, and a script that
// deletes the key if it still has their value.
func rawSubject(addr string) subject {
	rdb := newGoRedis(addr)
	return subject{
		name: nameRaw,
		open: func(context.Context) (client, error) { return &rawClient{rdb: rdb}, nil },
		stop: func() { _ = rdb.Close() },
	}
}

var compareAndDelete = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

type rawClient struct {
	rdb        *redis.Client
	key, token string
}

func (c *rawClient) Acquire(ctx context.Context, key string) error {
	c.key, c.token = "raw:"+key, rand.Text()
	return c.rdb.SetArgs(ctx, c.key, c.token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
}

func (c *rawClient) Release(ctx context.Context) error {
	n, err := compareAndDelete.Run(ctx, c.rdb, []string{c.key}, c.token).Int()
	if err == nil && n != 1 {
		err = errors.New("the lock was lost")
	}
	return err
}

func (c *rawClient) Close() {}

// redsyncSubject, if it waits, tries again after its default delay of 50 to
// 250 ms, more often than the 32 times that are its default.
func redsyncSubject(addr string, waits bool) subject {
	rdb := newGoRedis(addr)
	rs := redsync.New(redsyncredis.NewPool(rdb))
	tries := 1
	if waits {
		tries = math.MaxInt
	}
	return subject{
		name: nameRedsync,
		open: func(context.Context) (client, error) { return &redsyncClient{rs: rs, tries: tries}, nil },
		stop: func() { _ = rdb.Close() },
	}
}

type redsyncClient struct {
	rs    *redsync.Redsync
	tries int
	mutex *redsync.Mutex
}

func (c *redsyncClient) Acquire(ctx context.Context, key string) error {
	c.mutex = c.rs.NewMutex("redsync:"+key, redsync.WithExpiry(ttl), redsync.WithTries(c.tries))
	return c.mutex.LockContext(ctx)
}

func (c *redsyncClient) Release(ctx context.Context) error {
	_, err := c.mutex.UnlockContext(ctx)
	return err
}

func (c *redsyncClient) Close() {}

// redislockSubject, if it waits, tries again every 100 ms, as the library's
// example does.
func redislockSubject(addr string, waits bool) subject {
	rdb := newGoRedis(addr)
	locks := redislock.New(rdb)
	return subject{
		name: nameRedislock,
		open: func(context.Context) (client, error) { return &redislockClient{locks: locks, waits: waits}, nil },
		stop: func() { _ = rdb.Close() },
	}
}

type redislockClient struct {
	locks *redislock.Client
	waits bool
	lock  *redislock.Lock
}

func (c *redislockClient) Acquire(ctx context.Context, key string) (err error) {
	var options redislock.Options
	if c.waits {
		options.RetryStrategy = redislock.LinearBackoff(100 * time.Millisecond)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestWait) // or it gives up after a TTL
		defer cancel()
	}
	c.lock, err = c.locks.Obtain(ctx, "redislock:"+key, ttl, &options)
	return err
}

func (c *redislockClient) Release(ctx context.Context) error { return c.lock.Release(ctx) }

func (c *redislockClient) Close() {}

// rueidislockSubject takes one key per lock, as the others do; the library's
// default of three is for several servers. Its deadline for one request is
// 20 ms by default, which a busy machine with one server does not always keep.
// If it waits, the server tells it when the key is deleted.
func rueidislockSubject(addr string, waits bool) (subject, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:  1,
		KeyValidity:  ttl,
		TryNextAfter: time.Second,
	})
	if err != nil {
		return subject{}, err
	}
	return subject{
		name: nameRueidislock,
		open: func(context.Context) (client, error) { return &rueidislockClient{locks: locks, waits: waits}, nil },
		stop: locks.Close,
	}, nil
}

type rueidislockClient struct {
	locks rueidislock.Locker
	waits bool
	held  context.Context
	free  context.CancelFunc
}

func (c *rueidislockClient) Acquire(ctx context.Context, key string) (err error) {
	lock := c.locks.TryWithContext
	if c.waits {
		lock = c.locks.WithContext
	}
	c.held, c.free, err = lock(ctx, key)
	return err
}

// Release returns when the library has deleted the key; it does not tell
// whether that went well.
func (c *rueidislockClient) Release(context.Context) error {
	if err := c.held.Err(); err != nil {
		return err
	}
	c.free()
	return nil
}

func (c *rueidislockClient) Close() {}
