package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisServer is a redis-server of our own, and a client to look at it with.
type redisServer struct {
	*process
	addr  string
	admin *redis.Client
}

func (l *lab) startRedis(ctx context.Context) (*redisServer, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := start("redis-server", nil, "redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", l.dir, "--save", "", "--appendonly", "no")
	if err != nil {
		return nil, err
	}
	s := &redisServer{process: p, addr: addr, admin: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})}
	if err := s.await(ctx, func() error { return s.admin.Ping(ctx).Err() }); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *redisServer) stop() {
	_ = s.admin.Close() // it is only looked through
	s.kill()
}

// scriptCalls returns how many scripts the server has run.
func (s *redisServer) scriptCalls(ctx context.Context) (int64, error) {
	info, err := s.admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	return sumCalls(info, "eval", "evalsha", "fcall")
}

// sumCalls adds up the calls of the named commands in a commandstats answer.
func sumCalls(info string, commands ...string) (int64, error) {
	var sum int64
	for line := range strings.Lines(info) {
		for _, command := range commands {
			rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls=")
			if !ok {
				continue
			}
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("unreadable commandstats: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}
