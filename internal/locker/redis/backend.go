package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	// Addrs names the server: host:port, redis://[user:password@]host:port/db,
	// rediss:// for TLS, or unix:///path. What a URL says yields to the fields
	// below.
	Addrs []string

	Username Secret // nil for the default user
	Password Secret // nil for none
	DB       int    // 0 leaves it to the address

	// TLS makes connections use TLS, whatever the scheme. It is called for
	// each, so that certificates which were replaced are found. nil leaves TLS
	// to the scheme, with the system's authorities.
	TLS func() (*tls.Config, error)

	KeyPrefix string // precedes every name in Redis; may be empty

	// StoreTimeout bounds opening a connection, and calls whose context has no
	// deadline. 0 means DefaultStoreTimeout.
	StoreTimeout time.Duration

	Now locker.Clock // nil means locker.BootTime
	Log *slog.Logger // nil means silence
}

// Backend is a [locker.Backend], [locker.Queue], [locker.Inspector] and
// [locker.Annotator] on one Redis server.
type Backend struct {
	keys layout
	node *node
	log  *slog.Logger

	published atomic.Bool // we have found out whether we may
	denied    sync.Map    // permissions whose lack we have warned of
}

var (
	_ locker.Backend   = (*Backend)(nil)
	_ locker.Queue     = (*Backend)(nil)
	_ locker.Inspector = (*Backend)(nil)
	_ locker.Annotator = (*Backend)(nil)
)

// node is one server: what is known of its clock, and connections for each
// purpose, so that neither renewals nor releases ever queue behind acquires.
type node struct {
	now     locker.Clock
	clock   *serverClock
	acquire *pipeline // and all that only looks
	renew   *pipeline
	release *pipeline
}

// Lanes of the pipelines. A second one lets the server work on a batch while
// the answers to another are being read.
const (
	acquireLanes = 2
	renewLanes   = 2
	releaseLanes = 2
)

// New returns a Backend. It connects to nothing: a server that is down is met
// by the first call. Close it in the end.
func New(config Config) (*Backend, error) {
	if len(config.Addrs) != 1 {
		return nil, fmt.Errorf("redis: there must be one address, not %d", len(config.Addrs))
	}
	a, err := parseAddress(config.Addrs[0])
	if err != nil {
		return nil, fmt.Errorf("redis: address: %w", err)
	}
	if strings.ContainsAny(config.KeyPrefix, "{}") {
		return nil, errors.New("redis: the key prefix has a brace")
	}
	if config.StoreTimeout == 0 {
		config.StoreTimeout = DefaultStoreTimeout
	}
	if config.StoreTimeout < 0 || config.DB < 0 {
		return nil, errors.New("redis: negative timeout or database")
	}
	if config.Now == nil {
		config.Now = locker.BootTime
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	silenceDriver()
	return &Backend{
		keys: layout{config.KeyPrefix},
		node: newNode(newConnector(a, config), config.StoreTimeout),
		log:  config.Log,
	}, nil
}

func newConnector(a address, config Config) *connector {
	c := &connector{
		address: a, username: config.Username, password: config.Password, db: max(a.db, 0),
		tls: config.TLS, timeout: config.StoreTimeout, now: config.Now,
		clock: &serverClock{}, log: config.Log,
	}
	if c.username == nil && a.username != "" {
		c.username = Value(a.username)
	}
	if c.password == nil && a.password != "" {
		c.password = Value(a.password)
	}
	if config.DB != 0 {
		c.db = config.DB
	}
	switch {
	case a.network == "unix":
		c.tls = nil
	case c.tls == nil && a.tls:
		c.tls = func() (*tls.Config, error) { return &tls.Config{}, nil }
	}
	return c
}

func newNode(c *connector, timeout time.Duration) *node {
	ids := new(atomic.Uint64)
	return &node{
		now:     c.now,
		clock:   c.clock,
		acquire: newPipeline("acquire", c, timeout, ids, acquireLanes),
		renew:   newPipeline("renew", c, timeout, ids, renewLanes),
		release: newPipeline("release", c, timeout, ids, releaseLanes),
	}
}

func (n *node) pipelines() []*pipeline { return []*pipeline{n.acquire, n.renew, n.release} }

// nodeOf returns the server that decides on key.
func (b *Backend) nodeOf(locker.Key) *node { return b.node }

// Close cuts all connections. Calls that wait for an answer get an unknown
// outcome, later ones a certain refusal. No goroutine is left.
func (b *Backend) Close() {
	for _, p := range b.node.pipelines() {
		p.close()
	}
}

// Ping returns nil if the server runs our scripts; its errors are those of a
// request. Whether a server answers at all says less: TIME is answered while it
// is loading, and to a user who may not run scripts.
func (b *Backend) Ping(ctx context.Context) error {
	return b.node.acquire.do(ctx, &call{
		script: renewScript, // of no lock
		args: func(func(locker.Instant) string) []string {
			return []string{b.keys.companion(), millis(recordOutlives)}
		},
	})
}

// Warm opens all connections, so that the first calls need not. The Backend
// can be used whatever it returns.
func (b *Backend) Warm(ctx context.Context) error {
	var errs []error
	for _, p := range b.node.pipelines() {
		errs = append(errs, p.connectAll(ctx))
	}
	return errors.Join(errs...)
}

// Stats returns the state of each group of connections.
func (b *Backend) Stats() []PoolStats {
	var all []PoolStats
	for _, p := range b.node.pipelines() {
		all = append(all, p.poolStats())
	}
	return all
}
