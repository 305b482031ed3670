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
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
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
	nodes   []*storeNode    // several where a majority of them decides; none for memory
	quorum  *quorum.Backend // nil unless it does
	timeout time.Duration
	guarded bool
	log     *slog.Logger

	mu     sync.Mutex
	up     bool  // it has given a sign of life
	latest error // of the last one that was asked for
}

func openStore(s Settings, log *slog.Logger) (*store, error) {
	st := &store{timeout: s.StoreTimeout, guarded: s.RedisRestartGuard > 0, log: log, up: s.RedisMode == ModeMemory}
	switch s.RedisMode {
	case ModeMemory:
		st.Backend = memory.New(memory.Config{})
		return st, nil
	case ModeRedlock:
		return st, st.openQuorum(s)
	}
	node, err := openNode(s, s.RedisAddrs, log)
	if err != nil {
		return nil, err
	}
	st.Backend, st.nodes = node.Backend, []*storeNode{node}
	return st, nil
}

// watch asks now and then how the store is, until ctx is over, and logs what
// has changed. It blocks.
func (s *store) watch(ctx context.Context) {
	if len(s.nodes) == 0 {
		return
	}
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	var checked time.Time
	for {
		_ = s.ping(ctx) // it is told in the log
		s.eachNode(func(n *storeNode) {
			if n.isUp() {
				n.warm(ctx, s.timeout)
			}
		})
		if time.Since(checked) >= checkEvery && s.isUp() {
			s.check(ctx)
			checked = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// eachNode does something about all servers at the same time.
func (s *store) eachNode(do func(*storeNode)) {
	var doing sync.WaitGroup
	for _, n := range s.nodes {
		doing.Go(func() { do(n) })
	}
	doing.Wait()
}

// follow calls changed whenever another server decides on locks than before,
// until ctx is over.
func (s *store) follow(ctx context.Context, changed func()) {
	s.eachNode(func(n *storeNode) { n.Follow(ctx, changed) })
}

// ping asks the store for a sign of life.
func (s *store) ping(ctx context.Context) error {
	if len(s.nodes) == 0 {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.eachNode(func(n *storeNode) { n.ping(ctx, asked, s.quorum != nil) })
	err := s.failure()
	if ctx.Err() != nil {
		return err // it is the asker who has gone
	}
	s.mu.Lock()
	was, before := s.up, s.latest
	s.up, s.latest = err == nil || recovering(err), err
	s.mu.Unlock()
	switch {
	case recovering(err) && !recovering(before):
		s.log.Warn("the store may have lost its data: it grants no new lock for a while", "err", err)
	case err == nil && recovering(before):
		s.log.Info("the store grants locks again")
	case err == nil && !was:
		s.log.Info("the store answers")
	case !recovering(err) && err != nil && was:
		s.log.Warn("the store does not answer", "err", err)
	}
	return err
}

// failure is why no lock could be had, by the latest signs of life; nil if one
// could.
func (s *store) failure() error {
	if s.quorum == nil {
		return s.nodes[0].failure()
	}
	var failures []error
	recover := 0
	for _, n := range s.nodes {
		if err := n.failure(); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", n.name, err))
			if recovering(err) {
				recover++
			}
		}
	}
	if len(failures) <= len(s.nodes)/2 {
		return nil
	}
	reason := locker.StoreNoQuorum
	if len(failures)-recover <= len(s.nodes)/2 { // a majority answers
		reason = locker.StoreRecovering
	}
	return &locker.StoreError{Reason: reason, Certain: true, Err: errors.Join(failures...)}
}

// check looks at the servers' settings and warns once of each that endangers
// locks.
func (s *store) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.eachNode(func(n *storeNode) { n.check(ctx, s.quorum != nil) })
	s.compare()
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
	if s.quorum != nil {
		all[checkSameServer] = false
	}
	for _, n := range s.nodes {
		for _, w := range n.warned() {
			all[w.Check] = true
		}
	}
	return all
}

// warningTexts says what endangers locks, or will if more of it comes.
func (s *store) warningTexts() []string {
	var texts []string
	for _, n := range s.nodes {
		for _, w := range n.warned() {
			texts = append(texts, n.about(w.Message, s.quorum != nil))
		}
		if err := n.failure(); err != nil && s.quorum != nil {
			texts = append(texts, n.about(inPublic(err), true))
		}
	}
	return texts
}

// nodesUp tells of every server of a quorum whether its last sign of life was
// one; nil without a quorum.
func (s *store) nodesUp() map[string]bool {
	if s.quorum == nil {
		return nil
	}
	up := make(map[string]bool)
	for _, n := range s.nodes {
		up[n.name] = n.isUp()
	}
	return up
}

// problem says in public words why the store cannot be used; empty if it can.
func (s *store) problem(ctx context.Context) string {
	if err := s.ping(ctx); err != nil {
		return "the store " + inPublic(err)
	}
	for _, n := range s.nodes {
		if twin := n.twinWarning(); twin != nil {
			return n.about(twin.Message, true)
		}
	}
	return ""
}

// inPublic says what a failure means for whom it is not to be told all.
func inPublic(err error) string {
	var failure *locker.StoreError
	var wrong *redis.WrongKindError
	var differs *redis.GuardError
	switch {
	case errors.As(err, &differs):
		return "cannot be used: REDIS_RESTART_GUARD is not what others have: " + differs.Error()
	case errors.As(err, &wrong):
		return "cannot be used: " + wrong.Error()
	case errors.As(err, &failure):
		return fmt.Sprintf("cannot be used: %s", failure.Reason)
	}
	return "cannot be used"
}

// agree fails if others who share the locks have another restart guard. A
// store that does not answer is not waited for: it grants nothing if so.
func (s *store) agree(ctx context.Context) error {
	if s.guarded {
		var differs *redis.GuardError
		_ = s.ping(ctx) // it is told in the log
		for _, n := range s.nodes {
			if err := n.failure(); errors.As(err, &differs) {
				return fmt.Errorf("REDIS_RESTART_GUARD must be the same everywhere: at %s %w; see docs/operations.md for how to change it", n.name, differs)
			}
		}
	}
	return nil
}

func (s *store) close() {
	if s.quorum != nil {
		s.quorum.Close()
	}
	s.eachNode(func(n *storeNode) { n.Close() })
}
