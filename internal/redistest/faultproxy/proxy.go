// Package faultproxy stands between a Redis client and a Redis server and does
// to single commands what networks do: it delays them or their replies, holds
// them back until long after the client has left, executes them and loses the
// reply, sends them twice, cuts connections, or garbles what comes back.
//
// It reads RESP2 and RESP3, pipelines and subscriptions included. It does not
// know CLIENT REPLY and MONITOR, which break the rule of one reply a command.
package faultproxy

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// Proxy is a running proxy. Its methods are safe for concurrent use.
type Proxy struct {
	network  string
	listener net.Listener

	upstream atomic.Pointer[string]
	rule     atomic.Pointer[func(Command) Action]
	connect  atomic.Pointer[func(n int) Connect]

	closing chan struct{}
	close   sync.Once
	running sync.WaitGroup

	mu      sync.Mutex
	open    map[net.Conn]bool
	accepts int
	seen    int
	counts  map[string]int
	changed chan struct{} // closed, and replaced, at every count
	scripts map[string]string
}

// Start starts a proxy for the server at an address of the network "tcp" or
// "unix", which listens on the same kind of network. It ends with the test.
// At first it passes everything on unchanged.
func Start(t testing.TB, network, upstream string) *Proxy {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		// Not t.TempDir, whose path can be too long for a socket.
		dir, err := os.MkdirTemp("", "faultproxy")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		network: network, listener: listener,
		closing: make(chan struct{}),
		open:    make(map[net.Conn]bool),
		counts:  make(map[string]int),
		changed: make(chan struct{}),
		scripts: make(map[string]string),
	}
	p.Lead(upstream)
	t.Cleanup(p.Close)
	p.running.Go(p.accept)
	return p
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Lead has connections that are opened from now on lead to another server. Those
// that are open stay where they are, as behind a Service that is moved.
func (p *Proxy) Lead(upstream string) { p.upstream.Store(&upstream) }

// SetRule decides what happens to each command that arrives from now on, on
// whatever connection; nil passes all. The rule is called from many
// goroutines at once.
func (p *Proxy) SetRule(rule func(Command) Action) {
	if rule == nil {
		p.rule.Store(nil)
		return
	}
	p.rule.Store(&rule)
}

// SetConnect decides what happens to each connection that is opened from now
// on; n counts them from 0. nil passes all.
func (p *Proxy) SetConnect(connect func(n int) Connect) {
	if connect == nil {
		p.connect.Store(nil)
		return
	}
	p.connect.Store(&connect)
}

// Cut closes every connection that is open, on both sides. Requests that are
// held back are lost.
func (p *Proxy) Cut() {
	figures.Count(figures.ConnectionCut, figures.Wire, p.closeAll()/2) // both sides are there
}

func (p *Proxy) closeAll() (closed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
	return len(p.open)
}

// Close ends the proxy and all connections, and returns once no goroutine of
// it is left.
func (p *Proxy) Close() {
	p.close.Do(func() {
		close(p.closing)
		_ = p.listener.Close()
		p.closeAll()
	})
	p.running.Wait()
}

// Counts returns how many commands have arrived, by name in upper case.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Connections returns how many connections have been accepted so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepts
}

// Await returns once n commands of a name have arrived, counted from the
// start, or with ctx's cause. A command that has arrived need not have been
// passed on yet.
func (p *Proxy) Await(ctx context.Context, name string, n int) error {
	for {
		p.mu.Lock()
		arrived, changed := p.counts[name], p.changed
		p.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// LearnScript lets [Command.Script] name a script that did not pass through
// the proxy in full.
func (p *Proxy) LearnScript(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scripts[shaOf(text)] = firstLine(text)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		n := p.accepts
		p.accepts++
		p.mu.Unlock()
		client, ok := p.track(client)
		if !ok {
			return
		}
		p.running.Go(func() {
			defer p.untrack(client)
			p.serve(n, client)
		})
	}
}

// track has Cut and Close close the connection; false if it is too late.
func (p *Proxy) track(raw net.Conn) (c net.Conn, ok bool) {
	c = &surelyClosed{Conn: raw}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closing:
		_ = c.Close()
		return nil, false
	default:
	}
	p.open[c] = true
	return c, true
}

// surelyClosed is a connection that is closed by the time any call of Close
// returns. Of two calls that come at once, the second would otherwise return
// while the first still waits for a reader to leave.
type surelyClosed struct {
	net.Conn
	once sync.Once
}

func (c *surelyClosed) Close() (err error) {
	c.once.Do(func() { err = c.Conn.Close() })
	return err
}

func (p *Proxy) untrack(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// arrived counts a command, learns its script and completes it.
func (p *Proxy) arrived(c Command) Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.N = p.seen
	p.seen++
	p.counts[c.Name]++
	close(p.changed)
	p.changed = make(chan struct{})
	c.Script = p.scriptLocked(c)
	return c
}

// dial opens a connection to the server; nil if there is none.
func (p *Proxy) dial() net.Conn {
	server, err := net.DialTimeout(p.network, *p.upstream.Load(), dialDeadline)
	if err != nil {
		return nil
	}
	server, _ = p.track(server)
	return server
}

// dialDeadline is generous: what is being tested is the client.
const dialDeadline = 10 * time.Second

// pass lets d pass and then, if hold is not nil, waits until it is closed.
// It is false if the proxy was closed before.
func (p *Proxy) pass(d time.Duration, hold <-chan struct{}) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closing:
			return false
		}
	}
	if hold != nil {
		select {
		case <-hold:
		case <-p.closing:
			return false
		}
	}
	return true
}
