package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// ending is how the sidecar ended.
type ending struct {
	gone, exited time.Duration // since the signal
	code         int
}

// terminate ends a sidecar whose callers have gone, so that nobody is waited
// for, and watches the keys vanish.
func terminate(ctx context.Context, sidecar *server, store *redisServer, keys []string) (e ending, err error) {
	prefixed := make([]string, len(keys))
	for i, key := range keys {
		prefixed[i] = lockPrefix + key
	}
	var sample []string
	for i := 0; i < len(prefixed); i += 100 {
		sample = append(sample, prefixed[i])
	}
	begin := time.Now()
	if err := sidecar.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return e, err
	}
	exited := make(chan time.Time, 1)
	go func() { <-sidecar.exited; exited <- time.Now() }()

	// Counting all keys costs Redis milliseconds, so a sample is asked for
	// until it has gone.
	for _, some := range [][]string{sample, prefixed} {
		for left := int64(1); left > 0; {
			if left, err = store.admin.Exists(ctx, some...).Result(); err != nil {
				return e, err
			}
			if time.Since(begin) > ttl+5*time.Second {
				return e, fmt.Errorf("%d of %d keys are still there", left, len(some))
			}
			if err := pause(ctx, 2*time.Millisecond); err != nil {
				return e, err
			}
		}
	}
	e.gone = time.Since(begin)
	if e.code, err = sidecar.exitCode(10 * time.Second); err != nil {
		return e, err
	}
	e.exited = (<-exited).Sub(begin)
	return e, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
