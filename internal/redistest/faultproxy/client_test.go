package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// patience bounds what a test waits for; nothing takes nearly as long.
const patience = 10 * time.Second

// client is a connection that speaks just enough RESP for the tests.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, p *Proxy) *client {
	t.Helper()
	c, err := net.DialTimeout(p.network, p.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

// wantReset opens a connection, which must be reset, be it before the dial
// has returned.
func wantReset(t testing.TB, p *Proxy) {
	t.Helper()
	c, err := net.DialTimeout(p.network, p.Addr(), patience)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
}

// send sends a command without waiting for its reply.
func (c *client) send(args ...string) {
	c.t.Helper()
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.Write(out); err != nil {
		c.t.Fatal(err)
	}
}

// want reads a reply, which must be this one.
func (c *client) want(reply string) {
	c.t.Helper()
	v, err := readValue(c.r)
	if err != nil || string(v.raw) != reply {
		c.t.Fatalf("got %q, %v; want %q", v.raw, err, reply)
	}
}

// wantEnd waits for the end of the connection, before which nothing may come.
func (c *client) wantEnd() {
	c.t.Helper()
	_, err := c.r.ReadByte()
	if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
		c.t.Fatalf("read ended with %v, want the connection to end", err)
	}
}

// wantSilence checks that nothing comes within d.
func (c *client) wantSilence(d time.Duration) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
	b, err := c.r.ReadByte()
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		c.t.Fatalf("read %q, %v; want silence", b, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
}
