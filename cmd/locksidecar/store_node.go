package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/redis"
)

// storeNode is one authority, and what is known of its health. It is all of the
// store, or one of the servers of which a majority decides.
type storeNode struct {
	*redis.Backend
	name string
	log  *slog.Logger

	mu       sync.Mutex
	failing  error // of the last sign of life; errNotAsked before the first
	asked    bool  // the server has told about itself
	runID    string
	warnings []redis.Warning
	twin     *redis.Warning // that it is another node too; nil if it is not
}

var errNotAsked = &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true}

// openNode opens the authority to which the addresses lead.
func openNode(s Settings, addrs RedisAddrs, log *slog.Logger) (*storeNode, error) {
	backend, err := redis.New(redis.Config{
		Kind:     s.redisKind(),
		Addrs:    addrs.Addresses(),
		Username: s.UsernameSource(), Password: s.PasswordSource(), DB: s.RedisDB,
		MasterName: s.SentinelMaster, SentinelUsername: s.SentinelUsernameSource(), SentinelPassword: s.SentinelPasswordSource(),
		TLS: s.RedisTLSConfig(), KeyPrefix: s.KeyPrefix, StoreTimeout: s.StoreTimeout, MinReplicas: s.RedisMinReplicas,
		RestartGuard: s.RedisRestartGuard, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &storeNode{Backend: backend, name: addrs[0].String(), log: log, failing: errNotAsked}, nil
}

// ping asks for a sign of life within asked. ctx is the asker's, who may have
// gone. one says that there are others.
func (n *storeNode) ping(ctx, asked context.Context, one bool) {
	err := n.Ping(asked)
	if err == nil {
		err = n.grants(asked)
	}
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	was := n.failing
	n.failing = err
	n.mu.Unlock()
	switch {
	case !one, recovering(err) && recovering(was):
	case recovering(err):
		n.log.Warn("a node of the quorum may have lost its data: it grants no new lock for a while", "node", n.name, "err", err)
	case err != nil && (was == nil || was == errNotAsked || recovering(was)):
		n.log.Warn("a node of the quorum does not answer", "node", n.name, "err", err)
	case err == nil && was != nil && was != errNotAsked:
		n.log.Info("a node of the quorum answers again", "node", n.name)
	}
}

// grants returns nil if the server grants new locks.
func (n *storeNode) grants(ctx context.Context) error {
	left, err := n.Guard(ctx)
	if err == nil && left > 0 {
		err = &locker.StoreError{Reason: locker.StoreRecovering, Certain: true, Err: fmt.Errorf("no new lock for %v", left.Round(time.Millisecond))}
	}
	return err
}

// recovering tells whether a sign of life says that there are no new locks for
// a while, and nothing else is wrong.
func recovering(err error) bool {
	var failure *locker.StoreError
	return errors.As(err, &failure) && failure.Reason == locker.StoreRecovering
}

func (n *storeNode) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failing
}

// isUp tells whether the last sign of life was one.
func (n *storeNode) isUp() bool {
	err := n.failure()
	return err == nil || recovering(err)
}

// warm opens the connections that are missing. A renewal that had to open its
// own would have less time for itself, and none on a machine that is short of
// it.
func (n *storeNode) warm(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = n.Warm(ctx) // what stays closed is opened by the first request that needs it
}

// check looks at the server's settings. one says that there are others.
func (n *storeNode) check(ctx context.Context, one bool) {
	report, err := n.Report(ctx)
	if err != nil {
		return
	}
	n.mu.Lock()
	first := !n.asked
	n.asked, n.runID = true, report.Servers[0].RunID
	n.mu.Unlock()
	log := n.log
	if one {
		log = log.With("node", n.name)
	}
	for _, s := range report.Servers {
		if first {
			log.Info("store", "addr", s.Addr, "version", s.Version, "role", s.Role,
				"maxmemory_policy", s.MaxmemoryPolicy, "persistence", s.Persistence, "replicas", s.Replicas)
		}
	}
	n.tell(report.Warnings, log)
}

// hasTold says whether the server has ever told about itself.
func (n *storeNode) hasTold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// toldElsewhere are checks whose lines the backend writes where it notices.
var toldElsewhere = []string{redis.CheckClockStep, redis.CheckPermissions}

func (n *storeNode) tell(now []redis.Warning, log *slog.Logger) {
	n.mu.Lock()
	before := n.warnings
	n.warnings = now
	n.mu.Unlock()
	known := make(map[string]bool)
	for _, w := range before {
		known[w.Check] = true
	}
	for _, w := range now {
		if !known[w.Check] && !slices.Contains(toldElsewhere, w.Check) {
			log.Warn("the store endangers locks: "+w.Message, "check", w.Check)
		}
	}
}

// twinWarning is not nil if the server is another node of the quorum too.
func (n *storeNode) twinWarning() *redis.Warning {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.twin
}

func (n *storeNode) warned() []redis.Warning {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.twin != nil {
		return append(slices.Clone(n.warnings), *n.twin)
	}
	return n.warnings
}

// about says of which server something is true. one says that there are others.
func (n *storeNode) about(text string, one bool) string {
	if one {
		return "node " + n.name + ": " + text
	}
	return text
}
