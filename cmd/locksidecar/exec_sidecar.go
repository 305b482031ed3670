package main

import (
	"context"
	"fmt"
	"time"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// errOwnerAtWork says that this owner runs a command under the lock already: it
// would get the same grant, and two commands would run.
var errOwnerAtWork = &client.RefusedError{Code: "owner_busy", Title: "this owner holds the lock already"}

// sidecarSource takes the lock from a sidecar, bound to a connection: however
// this process ends, the lock ends with it.
type sidecarSource struct {
	client *client.Client
	key    string
	want   client.Request
}

func (s *sidecarSource) take(ctx context.Context, wait time.Duration) (heldLock, error) {
	want := s.want
	if wait > 0 {
		want.Wait = &wait
	}
	silence := &client.UnreachableError{URL: s.client.URL(), Asked: true, Err: fmt.Errorf("nothing has come within %s", readable(wait+answerWithin))}
	ctx, cancel := context.WithTimeoutCause(ctx, wait+answerWithin, silence)
	defer cancel()
	stream, err := s.client.Bind(ctx, s.key, want)
	if err != nil {
		return nil, err
	}
	if stream.Grant.Repeated {
		stream.Close() // the lock goes on with its other connection
		return nil, errOwnerAtWork
	}
	return &sidecarLock{stream: stream, client: s.client}, nil
}

func (s *sidecarSource) close() { s.client.Close() }

// sidecarLock is a lock that lives as long as its stream.
type sidecarLock struct {
	stream *client.Stream
	client *client.Client
}

func (l *sidecarLock) about() lockInfo {
	g := l.stream.Grant
	return lockInfo{fence: g.FencingToken, ttl: time.Duration(g.TTLMS) * time.Millisecond, validUntil: g.ValidUntil}
}

func (l *sidecarLock) next(ctx context.Context) (lockNews, error) {
	for {
		e, err := l.stream.Next(ctx)
		if err != nil {
			return lockNews{}, err
		}
		switch e.Kind {
		case client.EventHeld, client.EventRenewed, client.EventAtRisk, client.EventDraining:
			return lockNews{validUntil: e.ValidUntil}, nil
		case client.EventLost:
			return lockNews{lost: locker.Cause(e.Cause)}, nil
		case client.EventReleased:
			return lockNews{lost: causeReleased}, nil
		}
	}
}

// release asks for the confirmation that the end of a connection does not give.
func (l *sidecarLock) release(ctx context.Context, freeNow bool) error {
	defer l.stream.Close()
	return l.client.Release(ctx, l.stream.Grant.Key, client.Handle{Fence: l.stream.Grant.FencingToken}, client.ReleaseOptions{FreeNow: freeNow})
}
