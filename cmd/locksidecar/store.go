package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/locker/redis"
)

const (
	pingEvery  = 10 * time.Second
	checkEvery = time.Minute
)

// store is the backend that the settings choose, and what is known of its
// health.
type store struct {
	locker.Backend
	redis   *redis.Backend // nil for memory
	timeout time.Duration
	log     *slog.Logger

	mu       sync.Mutex
	up       bool
	asked    bool // the server has told about itself
	warnings []redis.Warning
}

func openStore(s Settings, log *slog.Logger) (*store, error) {
	st := &store{timeout: s.StoreTimeout, log: log, up: s.RedisMode == ModeMemory}
	if s.RedisMode == ModeMemory {
		st.Backend = memory.New(memory.Config{})
		return st, nil
	}
	backend, err := redis.New(redis.Config{
		Addrs:    s.RedisAddrs.Strings(),
		Username: s.UsernameSource(), Password: s.PasswordSource(), DB: s.RedisDB,
		TLS: s.RedisTLSConfig(), KeyPrefix: s.KeyPrefix, StoreTimeout: s.StoreTimeout, Log: log,
	})
	if err != nil {
		return nil, err
	}
	st.Backend, st.redis = backend, backend
	return st, nil
}

// watch asks now and then how the store is, until ctx is over, and logs what
// has changed. It blocks.
func (s *store) watch(ctx context.Context) {
	if s.redis == nil {
		return
	}
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	var checked time.Time
	for {
		if s.ping(ctx) == nil {
			s.warm(ctx)
			if time.Since(checked) >= checkEvery {
				s.check(ctx)
				checked = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ping asks the store for a sign of life.
func (s *store) ping(ctx context.Context) error {
	if s.redis == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.redis.Ping(asked)
	if ctx.Err() != nil {
		return err // it is the asker who has gone
	}
	s.mu.Lock()
	was := s.up
	s.up = err == nil
	s.mu.Unlock()
	switch {
	case err != nil && was:
		s.log.Warn("the store does not answer", "err", err)
	case err == nil && !was:
		s.log.Info("the store answers")
	}
	return err
}

// warm opens the connections that are missing. A renewal that had to open its
// own would have less time for itself, and none on a machine that is short of
// it.
func (s *store) warm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_ = s.redis.Warm(ctx) // what stays closed is opened by the first request that needs it
}

// check looks at the server's settings and warns once of each that endangers
// locks.
func (s *store) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	info, err := s.redis.ServerInfo(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	first := !s.asked
	s.asked = true
	s.mu.Unlock()
	if first {
		s.log.Info("store", "version", info.Version, "role", info.Role,
			"maxmemory_policy", info.MaxmemoryPolicy, "persistence", info.Persistence)
		if info.Version == redis.Unknown || info.Persistence == redis.Unknown {
			s.log.Warn("the store's user may not run INFO or CONFIG GET: eviction, persistence and version are not checked")
		}
	}
	s.tell(info.Warnings())
}

func (s *store) tell(now []redis.Warning) {
	s.mu.Lock()
	before := s.warnings
	s.warnings = now
	s.mu.Unlock()
	known := make(map[string]bool)
	for _, w := range before {
		known[w.Check] = true
	}
	for _, w := range now {
		if !known[w.Check] {
			s.log.Warn("the store endangers locks: "+w.Message, "check", w.Check)
		}
	}
}

// isUp tells whether the last sign of life was one.
func (s *store) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// warningsByCheck tells of every check whether it warns.
func (s *store) warningsByCheck() map[string]bool {
	all := make(map[string]bool)
	for _, name := range redis.CheckNames {
		all[name] = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.warnings {
		all[w.Check] = true
	}
	return all
}

func (s *store) warningTexts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var texts []string
	for _, w := range s.warnings {
		texts = append(texts, w.Message)
	}
	return texts
}

// problem says in public words why the store cannot be used; empty if it can.
func (s *store) problem(ctx context.Context) string {
	err := s.ping(ctx)
	var failure *locker.StoreError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failure):
		return fmt.Sprintf("the store cannot be used: %s", failure.Reason)
	}
	return "the store cannot be used"
}

func (s *store) close() {
	if s.redis != nil {
		s.redis.Close()
	}
}
