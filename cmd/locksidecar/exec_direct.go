package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/httpapi"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// directSource takes the lock from the store itself: it is a sidecar without
// doors, for one lock.
type directSource struct {
	engine *engine
	log    *logQueue
	want   locker.Request
	stop   context.CancelFunc
	inner  sync.WaitGroup
}

// openDirect makes the parts of a sidecar from the same settings.
func openDirect(key string, want client.Request, stderr io.Writer) (*directSource, error) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	s, warnings, err := LoadDirectSettings(hostname)
	if err != nil {
		return nil, &codedError{code: exitSettings, err: err}
	}
	if s.RedisMode == ModeMemory {
		return nil, &codedError{code: exitSettings, err: fmt.Errorf("%s_REDIS_MODE=memory with --direct would exclude nobody", envPrefix)}
	}
	log, queue := NewLogger(stderr, s.LogFormat, s.LogLevel)
	defer queue.flush(logFlush)
	for _, warning := range warnings {
		log.Warn("settings: " + warning)
	}
	parsed, err := locker.ParseKey(key)
	if err != nil {
		return nil, usageError("%w", err)
	}
	request, err := httpapi.Wanted(httpapi.Config{
		DefaultTTL: s.DefaultTTL, MaxTTL: s.MaxTTL, DefaultMaxHold: s.DefaultMaxHold, MaxWait: s.MaxWait,
		Holder: s.Holder, Reserved: []string{hostname},
	}, parsed, want.Parameters())
	if err != nil {
		return nil, asRefusal(err)
	}
	st, err := openStore(s, log)
	if err != nil {
		return nil, err
	}
	if s.Strict {
		ctx, cancel := context.WithTimeout(context.Background(), strictDirect)
		defer cancel()
		if err := st.demandSafe(ctx); err != nil {
			st.close()
			return nil, &codedError{code: exitUnavailable, err: err}
		}
	}
	if err := st.agree(context.Background()); err != nil {
		st.close()
		return nil, &codedError{code: exitUnavailable, err: err}
	}
	e, err := newEngine(s, st, st.Backend, locker.Silent{}, nil, log)
	if err != nil {
		st.close()
		return nil, err
	}
	d := &directSource{engine: e, log: queue, want: request}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.inner.Go(func() { e.run(ctx) })
	_ = st.ping(ctx) // opens a connection; what is wrong is told when the lock is asked for
	return d, nil
}

func (d *directSource) take(ctx context.Context, wait time.Duration) (heldLock, error) {
	want := d.want
	want.Wait = wait
	st, _, err := d.engine.locks.Acquire(ctx, want)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, asRefusal(err)
	}
	d.engine.locks.Cleared(st.ID) // no answer is on its way that could get lost
	watch, err := d.engine.locks.Watch(st.Key, locker.Handle{Fence: st.Fence})
	if err != nil {
		return nil, asRefusal(fmt.Errorf("%w: %w", locker.ErrAcquireUnresolved, err)) // it is over already
	}
	return &directLock{locks: d.engine.locks, granted: st, watch: watch}, nil
}

// close gives back what is held or was asked for, and waits a little for the
// store to confirm it.
func (d *directSource) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownBound)
	defer cancel()
	d.engine.locks.Shutdown(ctx, locker.ModeDrop, 0)
	d.stop()
	d.inner.Wait()
	d.engine.store.close()
	d.log.flush(logFlush)
}

// asRefusal turns the Locker's answer into the one that a sidecar would give.
func asRefusal(err error) error {
	var told struct {
		client.RefusedError
		Status int `json:"status"`
	}
	told.Raw = httpapi.Problem(err)
	if json.Unmarshal(told.Raw, &told) != nil {
		return err
	}
	told.RefusedError.Status = told.Status
	return &told.RefusedError
}

// directLock is a lock that this process holds.
type directLock struct {
	locks   *locker.Locker
	granted locker.Status
	watch   *locker.Watch
}

func (l *directLock) about() lockInfo {
	return lockInfo{fence: int64(l.granted.Fence), ttl: l.granted.TTL, validUntil: l.granted.ValidUntil}
}

func (l *directLock) next(ctx context.Context) (lockNews, error) {
	e, err := l.watch.Next(ctx)
	switch {
	case err != nil:
		return lockNews{}, err
	case e.Kind == locker.EventLost:
		return lockNews{lost: e.Lost.Cause}, nil
	case e.Kind == locker.EventReleased:
		return lockNews{lost: causeReleased}, nil
	}
	return lockNews{validUntil: e.Status.ValidUntil}, nil
}

func (l *directLock) release(ctx context.Context, freeNow bool) error {
	l.watch.Close()
	err := l.locks.Release(ctx, l.granted.Key, locker.Handle{Fence: l.granted.Fence}, locker.ReleaseOptions{SkipMinHold: freeNow})
	if err != nil {
		return asRefusal(err)
	}
	return nil
}
