package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// DefaultStoreTimeout is the StoreTimeout of a Config that has none.
const DefaultStoreTimeout = 300 * time.Millisecond

// Config says where Redis is and how to talk to it. Only Addrs must be set.
type Config struct {
	Kind  Kind
	Addrs []Address

	Username Secret // nil for the default user
	Password Secret // nil for none
	DB       int

	// TLS makes connections use TLS. It is called for each, so that
	// certificates which were replaced are found. nil means plain text, which
	// no failure ever leads to.
	TLS func() (*tls.Config, error)

	KeyPrefix string // precedes every name in Redis; may be empty

	// StoreTimeout bounds opening a connection, and calls whose context has no
	// deadline. 0 means DefaultStoreTimeout.
	StoreTimeout time.Duration

	// How to find the master by Sentinels: its name, and who we are to them.
	MasterName       string
	SentinelUsername Secret
	SentinelPassword Secret

	// MinReplicas is how many replicas must have acknowledged a grant, or an
	// extension. One that fewer have is undone, or counts as failed.
	MinReplicas int

	// RestartGuard is for how long a server that may have lost its data grants
	// nothing, while renewals and releases go on. It must be no less than the
	// longest time for which a lock is kept, and the same for all who share the
	// locks. 0 means that a server which has lost a lock grants it anew at once.
	// A Cluster cannot be guarded.
	RestartGuard time.Duration

	Now locker.Clock // nil means locker.BootTime
	Log *slog.Logger // nil means silence
}

// Backend is a [locker.Member], and so also a [locker.Queue],
// [locker.Inspector] and [locker.Annotator], on one Redis server.
type Backend struct {
	keys    layout
	servers servers
	timeout time.Duration // for callers without a deadline
	now     locker.Clock
	log     *slog.Logger

	minReplicas int
	guard       string // its ms; empty for none

	closing context.Context
	close   context.CancelFunc

	kind      Kind
	lacks     *lacks
	published atomic.Bool // we have found out whether we may
}

var _ locker.Member = (*Backend)(nil)

// New returns a Backend, which then looks for its servers by itself. One that is
// down is met by the first call. Close it in the end.
func New(config Config) (*Backend, error) {
	switch {
	case config.Kind != Single && config.Kind != Sentinel && config.Kind != Cluster:
		return nil, fmt.Errorf("redis: there is no kind %q", config.Kind)
	case config.Kind == Single && len(config.Addrs) != 1:
		return nil, fmt.Errorf("redis: there must be one address, not %d", len(config.Addrs))
	case len(config.Addrs) == 0:
		return nil, errors.New("redis: there must be an address")
	case config.Kind == Cluster && config.DB != 0:
		return nil, errors.New("redis: a cluster has no databases but 0")
	case config.Kind == Cluster && config.RestartGuard != 0:
		return nil, errors.New("redis: a cluster's nodes cannot be guarded, as slots move between them")
	case config.Kind == Sentinel && config.MasterName == "":
		return nil, errors.New("redis: Sentinels know masters by name, and there is none")
	}
	if strings.ContainsAny(config.KeyPrefix, "{}") {
		return nil, errors.New("redis: the key prefix has a brace")
	}
	if config.StoreTimeout == 0 {
		config.StoreTimeout = DefaultStoreTimeout
	}
	if config.StoreTimeout < 0 || config.DB < 0 || config.MinReplicas < 0 || config.RestartGuard < 0 {
		return nil, errors.New("redis: a negative timeout, database, number of replicas or guard")
	}
	if config.Now == nil {
		config.Now = locker.BootTime
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	silenceDriver()
	guard := ""
	if config.RestartGuard > 0 {
		guard = millis(config.RestartGuard)
	}
	closing, cancel := context.WithCancel(context.Background())
	lacks := &lacks{log: config.Log}
	return &Backend{
		keys: layout{config.KeyPrefix}, timeout: config.StoreTimeout, now: config.Now, log: config.Log,
		servers: newServers(config, lacks), minReplicas: config.MinReplicas, guard: guard, kind: config.Kind, lacks: lacks,
		closing: closing, close: cancel,
	}, nil
}

func newServers(config Config, lacks *lacks) servers {
	all := &nodes{config: config, lacks: lacks}
	all.greet = all.guarded(greetServer)
	switch config.Kind {
	case Sentinel:
		all.greet = all.guarded(greetMaster)
		return newSentinels(all)
	case Cluster:
		return newCluster(all)
	}
	return single{all.new(config.Addrs[0])}
}

// Close cuts all connections. Calls that wait for an answer get an unknown
// outcome, later ones a certain refusal. No goroutine is left.
func (b *Backend) Close() {
	b.close()
	b.servers.close()
}

// bounded gives ctx a deadline if it has none.
func (b *Backend) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// Ping returns nil if a server runs our scripts; its errors are those of a
// request. Whether a server answers at all says less: TIME is answered while it
// is loading, and to a user who may not run scripts.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if b.servers.apart() {
		return b.pingAny(ctx)
	}
	// A look at two names of which no lock can have either. Their slots differ,
	// which a cluster minds.
	c := b.ping(b.keys.prefix+"#ping:{a}", b.keys.prefix+"#ping:{b}")
	err := b.send(ctx, toLook, c)
	if crossSlot(err) {
		return wrongKind(c.node.address, aServer, aClusterNode)
	}
	if err != nil {
		return err
	}
	return b.replicasThere(ctx, c.node)
}

// pingAny asks all servers of a cluster, each for locks that it decides on, and is
// content with one: the locks of others are of no help to those of a server that
// is down, but do not suffer.
func (b *Backend) pingAny(ctx context.Context) error {
	if _, err := b.servers.route(ctx, &call{}); err != nil {
		return err
	}
	nodes, _ := b.servers.all()
	errs := make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() {
			if errs[i] = n.acquire.do(ctx, b.ping(b.nameOn(n)...)); errs[i] == nil {
				errs[i] = b.replicasThere(ctx, n)
			}
		})
	}
	asking.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

// nameOn returns a name that no lock can have and that a node of a cluster decides
// on: a node that has lost the others runs what has none. It is empty where the
// node has so few slots that none was found.
func (b *Backend) nameOn(n *node) []string {
	for i := range slotCount {
		name := b.keys.prefix + "#ping:{" + strconv.Itoa(i) + "}"
		if b.servers.owner(name) == n {
			return []string{name}
		}
	}
	return nil
}

// ping verifies locks that nobody has.
func (b *Backend) ping(keys ...string) *call {
	return &call{
		script: renewScript,
		keys:   keys,
		args: func(func(locker.Instant) string) []string {
			args := []string{b.keys.companion(), millis(recordOutlives)}
			for range keys {
				args = append(args, "-", "0", "0") // not ours, not to be kept, late by now
			}
			return args
		},
	}
}

// Warm opens all connections, so that the first calls need not. The Backend
// can be used whatever it returns.
func (b *Backend) Warm(ctx context.Context) error {
	var errs []error
	nodes, _ := b.servers.all()
	for _, n := range nodes {
		for _, p := range n.pipelines() {
			errs = append(errs, p.connectAll(ctx))
		}
	}
	return errors.Join(errs...)
}

// Stats returns the state of each group of connections, of each server.
func (b *Backend) Stats() []PoolStats {
	var all []PoolStats
	nodes, _ := b.servers.all()
	for _, n := range nodes {
		for _, p := range n.pipelines() {
			all = append(all, p.poolStats())
		}
	}
	return all
}
