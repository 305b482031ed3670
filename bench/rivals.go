package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// instances is how many sidecars, or client objects of a library, the
	// workers of a subject are spread over, as over the pods of a service.
	instances = 4

	// longestWait bounds any wait for a lock, by far.
	longestWait = 2 * time.Minute

	// pollEvery is how often people poll who write that by hand, and do not
	// want to wait long; half of it more or less by chance.
	pollEvery = 5 * time.Millisecond
)

// crowds are the numbers of workers by which costs are compared.
var crowds = [...]int{2, 32, 200, 1000}

// crowdRounds is rounds for what is measured once for each of the crowds.
func (l *lab) crowdRounds() int {
	if l.quick {
		return 1
	}
	return 3
}

// opener starts one instance of a subject whose clients wait.
type opener func(ctx context.Context, redisAddr string) (subject, error)

// waiting are the subjects whose waiting is compared, ours first.
func (l *lab) waiting() []opener {
	return []opener{
		func(ctx context.Context, addr string) (subject, error) {
			s, err := l.startSidecar(ctx, addr)
			if err != nil {
				return subject{}, err
			}
			return s.waitingSubject(), nil
		},
		func(ctx context.Context, addr string) (subject, error) {
			s, err := l.bareHandlerSubject(ctx, addr)
			return polling(s, func(err error) bool {
				var unwanted *unwantedError
				return errors.As(err, &unwanted) && unwanted.got == http.StatusConflict
			}), err
		},
		func(_ context.Context, addr string) (subject, error) {
			return polling(rawSubject(addr), func(err error) bool { return errors.Is(err, redis.Nil) }), nil
		},
		func(_ context.Context, addr string) (subject, error) { return redsyncSubject(addr, true), nil },
		func(_ context.Context, addr string) (subject, error) { return redislockSubject(addr, true), nil },
		func(_ context.Context, addr string) (subject, error) { return rueidislockSubject(addr, true) },
	}
}

// openWaiting starts all of them, on one Redis.
func (l *lab) openWaiting(ctx context.Context, redisAddr string) (subjects []subject, err error) {
	for _, open := range l.waiting() {
		s, err := spread(ctx, redisAddr, open)
		if err != nil {
			stopAll(subjects)
			return nil, err
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// spread makes one subject of several instances, which get the workers in
// turn.
func spread(ctx context.Context, redisAddr string, open opener) (subject, error) {
	var all []subject
	for range instances {
		s, err := open(ctx, redisAddr)
		if err != nil {
			stopAll(all)
			return subject{}, err
		}
		all = append(all, s)
	}
	next := 0
	whole := subject{
		name: all[0].name,
		open: func(ctx context.Context) (client, error) {
			next++
			return all[(next-1)%instances].open(ctx)
		},
		stop: func() { stopAll(all) },
	}
	for _, s := range all {
		whole.sidecars = append(whole.sidecars, s.sidecars...)
	}
	return whole, nil
}

// polling makes a subject one whose clients try again and again while they are
// refused.
func polling(s subject, refused func(error) bool) subject {
	open := s.open
	s.open = func(ctx context.Context) (client, error) {
		c, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return &pollingClient{c, refused}, nil
	}
	return s
}

type pollingClient struct {
	client
	refused func(error) bool
}

func (c *pollingClient) Acquire(ctx context.Context, key string) error {
	for {
		err := c.client.Acquire(ctx, key)
		if err == nil || !c.refused(err) {
			return err
		}
		if err := pause(ctx, pollEvery/2+rand.N(pollEvery)); err != nil {
			return err
		}
	}
}

// waitingSubject is subject with clients that wait, each under a name of its
// own.
func (s *server) waitingSubject() subject {
	workers := 0
	return subject{
		name: s.name,
		open: func(ctx context.Context) (client, error) {
			conn, err := dialHTTP(ctx, s.addr)
			if err != nil {
				return nil, err
			}
			conn.patience = longestWait + 10*time.Second
			workers++
			return &waitingHTTPClient{conn: conn, owner: fmt.Sprintf("w%d", workers)}, nil
		},
		stop:     s.kill,
		sidecars: []*server{s},
	}
}

type waitingHTTPClient struct {
	conn          *httpConn
	owner, target string
}

func (c *waitingHTTPClient) Acquire(_ context.Context, key string) error {
	c.target = "/locks/" + key
	return c.conn.want(http.StatusCreated, http.MethodPost, c.target,
		fmt.Sprintf("ttl=%v&wait=%v&owner=%s", ttl, longestWait, c.owner))
}

func (c *waitingHTTPClient) Release(context.Context) error {
	return c.conn.want(http.StatusNoContent, http.MethodDelete, c.target+"?owner="+c.owner, "")
}

func (c *waitingHTTPClient) Close() { _ = c.conn.Close() }
