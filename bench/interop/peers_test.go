package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	goredispool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// peer is another lock library.
type peer struct {
	name string

	// lock tries once to lock a name. It returns errHeld if that is held.
	lock func(ctx context.Context, name string, ttl time.Duration) (peerLock, error)
}

// peerLock is a lock that a peer has taken. Its methods return errNotHeld if
// it is not the peer's any more.
type peerLock struct {
	unlock func(context.Context) error
	extend func(context.Context) error // by the TTL it was taken with
}

var (
	errHeld    = errors.New("held by another")
	errNotHeld = errors.New("not held")
)

// peers returns the libraries, each on the same client.
func peers(t *testing.T, socket string) []peer {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() { _ = client.Close() })
	return []peer{
		{"redsync", lockWithRedsync(redsync.New(goredispool.NewPool(client)))},
		{"redislock", lockWithRedislock(redislock.New(client))},
	}
}

func lockWithRedsync(rs *redsync.Redsync) func(context.Context, string, time.Duration) (peerLock, error) {
	return func(ctx context.Context, name string, ttl time.Duration) (peerLock, error) {
		// By default it gives a server a twentieth of the TTL to answer, which is
		// less than a busy machine may stop it for.
		mutex := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(10))
		taken := (*redsync.ErrTaken)(nil)
		if err := mutex.TryLockContext(ctx); errors.As(err, &taken) {
			return peerLock{}, errHeld
		} else if err != nil {
			return peerLock{}, err
		}
		outcome := func(ok bool, err error) error {
			switch {
			case ok:
				return nil
			case err == nil, errors.As(err, &taken), errors.Is(err, redsync.ErrLockAlreadyExpired):
				return errNotHeld
			}
			return err
		}
		return peerLock{
			unlock: func(ctx context.Context) error { return outcome(mutex.UnlockContext(ctx)) },
			extend: func(ctx context.Context) error { return outcome(mutex.ExtendContext(ctx)) },
		}, nil
	}
}

func lockWithRedislock(client *redislock.Client) func(context.Context, string, time.Duration) (peerLock, error) {
	return func(ctx context.Context, name string, ttl time.Duration) (peerLock, error) {
		lock, err := client.Obtain(ctx, name, ttl, nil) // without a retry strategy it tries once
		if errors.Is(err, redislock.ErrNotObtained) {
			return peerLock{}, errHeld
		} else if err != nil {
			return peerLock{}, err
		}
		outcome := func(err error) error {
			if errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained) {
				return errNotHeld
			}
			return err
		}
		return peerLock{
			unlock: func(ctx context.Context) error { return outcome(lock.Release(ctx)) },
			extend: func(ctx context.Context) error { return outcome(lock.Refresh(ctx, ttl, nil)) },
		}, nil
	}
}
