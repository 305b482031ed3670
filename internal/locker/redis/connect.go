package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// How long no connection is tried after the server has refused our
// credentials: many clients that insist lock an account or fill a log.
const (
	firstAuthPause   = 250 * time.Millisecond
	longestAuthPause = 10 * time.Second
)

// bufferSize is that of a connection's reader and writer each. It holds a
// usual batch; a larger one takes more than one system call.
const bufferSize = 16 << 10

// connector opens connections to one server.
type connector struct {
	address  Address
	username Secret
	password Secret
	db       int
	tls      func() (*tls.Config, error) // nil for plain text
	timeout  time.Duration               // for a connection to become ready
	greet    greeting
	lacks    *lacks
	now      locker.Clock
	clock    *serverClock
	log      *slog.Logger

	// doubts is how many times the server was found to be no master, and settled
	// for how many of them its marker is being made anew.
	doubts, settled atomic.Uint64

	era atomic.Pointer[era] // ends when the server is found to be no master

	mu        sync.Mutex
	failing   locker.StoreReason // of the latest attempt; empty if it succeeded
	refusal   *locker.StoreError // of our credentials
	pause     time.Duration
	pausedTil time.Time
}

// link is one connection that is ready for requests. It belongs to one
// goroutine; only close may be called from others.
type link struct {
	wire   *wire
	client *goredis.Client
	era    *era
	run    string // id of the server's run, if it is guarded and tells it
	forget func() bool
}

// era is the time during which an address leads to the same master. Connections
// that were opened in an earlier one are of no use: behind the same address
// there may be another server by now.
type era struct{ over chan struct{} }

func newEra() *era { return &era{make(chan struct{})} }

// demoted ends the era of a connection over which a server has said that it is
// no master.
func (c *connector) demoted(l *link) {
	c.doubts.Add(1)
	if c.era.CompareAndSwap(l.era, newEra()) {
		close(l.era.over)
	}
}

type credentials struct{ username, password string }

// connect returns a connection that has answered the greeting. Every error is a
// certain *locker.StoreError. The connection is cut when ctx ends.
func (c *connector) connect(ctx context.Context) (*link, error) {
	if err := c.paused(); err != nil {
		return nil, err
	}
	l, err := c.open(ctx)
	if err != nil {
		failure := connectFailure(err)
		if ctx.Err() == nil { // else it is we who have closed it
			c.failed(failure)
		}
		return nil, failure
	}
	c.succeeded()
	return l, nil
}

// open tries once, and a second time if the server refuses credentials that
// have been replaced while it was being asked.
func (c *connector) open(ctx context.Context) (*link, error) {
	who, err := c.credentials()
	if err != nil {
		return nil, &locker.StoreError{Reason: locker.StoreAuthFailed, Certain: true, Err: err}
	}
	l, err := c.openAs(ctx, who)
	if err == nil || connectFailure(err).Reason != locker.StoreAuthFailed {
		return l, err
	}
	again, readErr := c.credentials()
	if readErr != nil || again == who {
		return nil, err
	}
	return c.openAs(ctx, again)
}

func (c *connector) credentials() (who credentials, err error) {
	if who.username, err = c.username.read(); err != nil {
		return credentials{}, err
	}
	if who.password, err = c.password.read(); err == nil && c.password != nil && who.password == "" {
		// The driver would send none, and be whoever the server takes it for.
		err = errors.New("the password is empty")
	}
	return who, err
}

func (c *connector) openAs(ctx context.Context, who credentials) (*link, error) {
	attempt, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	now := c.era.Load()
	w, err := c.dial(attempt)
	if err != nil {
		return nil, err
	}
	l := &link{wire: w, client: c.newClient(w, who), era: now}
	l.forget = context.AfterFunc(ctx, func() { _ = w.Close() })
	if err := c.greet(attempt, c, l); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// silenceDriver keeps the driver from writing to the process's standard error:
// all that it would tell is in its errors too.
var silenceDriver = sync.OnceFunc(func() { goredis.SetLogger(mute{}) })

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// newClient returns a client of the driver that uses w, and opens no
// connection itself: its own dialling hides whether a request was sent, goes
// on after its caller has left, and holds errors back for a second.
func (c *connector) newClient(w *wire, who credentials) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr:     c.address.Addr,
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return w, nil },
		Username: who.username,
		Password: who.password,
		DB:       c.db,

		// RESP2 has no message that comes unasked.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		// A repeated SET NX would turn our own success into another's lock.
		MaxRetries: -1,

		// Every call has a deadline, which these let through.
		ContextTimeoutEnabled: true,
		ReadTimeout:           -1,
		WriteTimeout:          -1,

		PoolSize:         1,
		PipelinePoolSize: -1,
		ConnMaxIdleTime:  -1,
		ReadBufferSize:   bufferSize,
		WriteBufferSize:  bufferSize,
	})
}

func (c *connector) dial(ctx context.Context) (*wire, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, c.address.Network, c.address.Addr)
	if err != nil {
		return nil, err
	}
	if c.tls == nil {
		return newWire(conn, conn), nil
	}
	config, err := c.tlsConfig()
	if err != nil {
		conn.Close()
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return newWire(secured, conn), nil
}

func (c *connector) tlsConfig() (*tls.Config, error) {
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		host, err := c.address.host()
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	return config, nil
}

// close ends the connection; an answer that is awaited fails.
func (l *link) close() {
	l.forget()
	_ = l.wire.Close()
	_ = l.client.Close()
}

// paused returns the refusal of our credentials while no other attempt is due.
func (c *connector) paused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != nil && time.Now().Before(c.pausedTil) {
		return c.refusal
	}
	return nil
}

func (c *connector) failed(failure *locker.StoreError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing != failure.Reason {
		c.failing = failure.Reason
		c.log.Warn("no connection to the store", "addr", c.address.String(), "err", failure)
	}
	if failure.Reason != locker.StoreAuthFailed {
		return
	}
	c.refusal = failure
	c.pause = min(max(2*c.pause, firstAuthPause), longestAuthPause)
	c.pausedTil = time.Now().Add(c.pause)
}

func (c *connector) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing != "" {
		c.log.Info("connected to the store again", "addr", c.address.String())
	}
	c.failing, c.refusal, c.pause = "", nil, 0
}
