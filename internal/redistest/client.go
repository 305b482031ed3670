package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// replyDeadline bounds one command of a [Conn].
const replyDeadline = 10 * time.Second

// Error is an error reply, without its leading '-'.
type Error string

func (e Error) Error() string { return string(e) }

// What [Server.PTTL] returns where there is no time to live.
const (
	NoTTL = -1 * time.Millisecond // the key lives for ever
	NoKey = -2 * time.Millisecond // there is no such key
)

// Conn is a connection that speaks RESP2. It is independent of the driver
// under test.
type Conn struct {
	c net.Conn
	r *bufio.Reader
}

// Dial opens a connection over the server's socket, as the default user. It
// is closed when the test ends.
func (s *Server) Dial() *Conn {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func (s *Server) dial() (*Conn, error) {
	nc, err := net.DialTimeout("unix", s.Socket(), replyDeadline)
	if err != nil {
		return nil, err
	}
	c := &Conn{c: nc, r: bufio.NewReader(nc)}
	if s.cfg.Password != "" {
		if _, err := c.Do("AUTH", s.cfg.Password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close closes the connection; a command that waits for its reply fails.
func (c *Conn) Close() { _ = c.c.Close() }

// Do sends one command and returns its reply: a string, an int64, nil, or a
// []any of these, in which errors are of type [Error]. An error reply is
// returned as an error of that type.
func (c *Conn) Do(args ...any) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	reply, err := readReply(c.r)
	if err != nil {
		return nil, err
	}
	if refused, ok := reply.(Error); ok {
		return nil, refused
	}
	return reply, nil
}

// Send sends one command and reads no reply.
func (c *Conn) Send(args ...any) error {
	if err := c.c.SetDeadline(time.Now().Add(replyDeadline)); err != nil {
		return err
	}
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		s := fmt.Sprint(arg)
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(s), s)
	}
	_, err := c.c.Write(out)
	return err
}

// Try sends one command over a connection of its own; see [Conn.Do]. It may
// be called from any goroutine.
func (s *Server) Try(args ...any) (any, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// Do is Try for commands that must succeed: the test fails if they do not.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args[0], err)
	}
	switch fmt.Sprint(args[0]) {
	case "FLUSHALL", "FLUSHDB":
		s.count(figures.Wiped)
	case "CLIENT":
		if args[1] == "PAUSE" {
			s.count(figures.ServerSlow)
		}
	}
	return reply
}

// Get returns the string at key, and whether there is one.
func (s *Server) Get(key string) (value string, ok bool) {
	s.t.Helper()
	value, ok = replyAs[any](s.t, s.Do("GET", key)).(string)
	return value, ok
}

// PTTL returns how long the key still lives, or [NoTTL] or [NoKey].
func (s *Server) PTTL(key string) time.Duration {
	s.t.Helper()
	return time.Duration(replyAs[int64](s.t, s.Do("PTTL", key))) * time.Millisecond
}

// Keys returns the keys that match the glob pattern, in no order.
func (s *Server) Keys(pattern string) []string {
	s.t.Helper()
	var keys []string
	for _, key := range replyAs[[]any](s.t, s.Do("KEYS", pattern)) {
		keys = append(keys, replyAs[string](s.t, key))
	}
	return keys
}

// Hash returns the fields of the hash at key; none if there is no such key.
func (s *Server) Hash(key string) map[string]string {
	s.t.Helper()
	flat := replyAs[[]any](s.t, s.Do("HGETALL", key))
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[replyAs[string](s.t, flat[i])] = replyAs[string](s.t, flat[i+1])
	}
	return fields
}

func replyAs[T any](t testing.TB, reply any) T {
	t.Helper()
	v, ok := reply.(T)
	if !ok && reply != nil {
		t.Fatalf("reply has the type %T, want %T", reply, v)
	}
	return v
}

// readReply reads one RESP2 value; error replies are values of type [Error].
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("malformed reply line of %d bytes", len(line))
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("malformed reply: %w", err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		return readBulk(r, int(n))
	case kind == '*':
		return readArray(r, int(n))
	}
	return nil, fmt.Errorf("unknown reply type %q", kind)
}

func readBulk(r *bufio.Reader, n int) (any, error) {
	buf := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	return string(buf[:n]), nil
}

func readArray(r *bufio.Reader, n int) (any, error) {
	values := make([]any, 0, n)
	for range n {
		v, err := readReply(r)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}
