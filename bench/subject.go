package main

import (
	"context"
	"time"
)

// ttl is the lease that every lock is asked for with.
const ttl = 30 * time.Second

// subject is something that gives locks: a server with HTTP clients, or a
// library in this process.
type subject struct {
	name string
	open func(context.Context) (client, error)
	stop func()

	sidecars []*server // that tell what they have done, if it is them and they are asked to wait
}

// client is one worker with a subject. It holds at most one lock at a time and
// is used by one goroutine.
type client interface {
	// Acquire takes a lock; anything but a grant is an error. Clients of
	// some subjects wait until it is free.
	Acquire(ctx context.Context, key string) error
	// Release gives it back; anything but a confirmation is an error.
	Release(ctx context.Context) error
	Close()
}

// cycle is what a worker does with a lock, without the work.
func cycle(ctx context.Context, c client, key string) error {
	if err := c.Acquire(ctx, key); err != nil {
		return err
	}
	return c.Release(ctx)
}

const (
	nameSidecar     = "locksidecar"
	nameBareHandler = "bare handler"
	nameRaw         = "raw go-redis"
	nameRedsync     = "redsync"
	nameRedislock   = "redislock"
	nameRueidislock = "rueidislock"
)

// openSubjects starts everything that is compared, on one Redis. No client
// waits.
func (l *lab) openSubjects(ctx context.Context, redisAddr string) (subjects []subject, err error) {
	defer func() {
		if err != nil {
			stopAll(subjects)
		}
	}()
	for _, open := range []func() (subject, error){
		func() (subject, error) { return l.sidecarSubject(ctx, redisAddr) },
		func() (subject, error) { return l.bareHandlerSubject(ctx, redisAddr) },
		func() (subject, error) { return rawSubject(redisAddr), nil },
		func() (subject, error) { return redsyncSubject(redisAddr, false), nil },
		func() (subject, error) { return redislockSubject(redisAddr, false), nil },
		func() (subject, error) { return rueidislockSubject(redisAddr, false) },
	} {
		s, err := open()
		if err != nil {
			return subjects, err
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

func stopAll(subjects []subject) {
	for _, s := range subjects {
		s.stop()
	}
}

func namesOf(subjects []subject) []string {
	names := make([]string, len(subjects))
	for i, s := range subjects {
		names[i] = s.name
	}
	return names
}

// openClients opens n workers of a subject.
func (s subject) openClients(ctx context.Context, n int) ([]client, error) {
	clients := make([]client, 0, n)
	for range n {
		c, err := s.open(ctx)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []client) {
	for _, c := range clients {
		c.Close()
	}
}
