package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"
)

// httpConn is one kept-alive HTTP/1.1 connection. It does the least that a
// client can do, the same for every server, so that the servers are what is
// measured.
type httpConn struct {
	conn    net.Conn
	answer  *bufio.Reader
	request []byte
	body    []byte // of the last answer

	patience time.Duration // bounds one request, so that a hanging server fails the run
}

func dialHTTP(ctx context.Context, addr string) (*httpConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn: conn, answer: bufio.NewReader(conn), patience: 10 * time.Second}, nil
}

// do sends a request with a form as its body, or without one, and returns the
// status. The answer's body is in c.body until the next request.
func (c *httpConn) do(method, target, form string) (status int, err error) {
	b := append(c.request[:0], method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: localhost\r\n"...)
	if form != "" {
		b = append(b, "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(form)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	b = append(b, form...)
	c.request = b

	if err := c.conn.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(b); err != nil {
		return 0, err
	}
	return c.readAnswer()
}

// want is do for requests that have one good answer.
func (c *httpConn) want(status int, method, target, form string) error {
	got, err := c.do(method, target, form)
	if err == nil && got != status {
		err = &unwantedError{method + " " + target, got, status, string(c.body)}
	}
	return err
}

// unwantedError is an answer with another status than the good one.
type unwantedError struct {
	request   string
	got, want int
	body      string
}

func (e *unwantedError) Error() string {
	return fmt.Sprintf("%s: status %d instead of %d: %s", e.request, e.got, e.want, e.body)
}

func (c *httpConn) readAnswer() (status int, err error) {
	line, err := c.answer.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, fmt.Errorf("unreadable status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("unreadable status line: %w", err)
	}
	length := 0
	for {
		line, err := c.answer.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		switch {
		case len(name) == 0:
			c.body = slices.Grow(c.body[:0], length)[:length]
			_, err := io.ReadFull(c.answer, c.body)
			return status, err
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, fmt.Errorf("unreadable Content-Length: %w", err)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return 0, errors.New("an answer of unknown length")
		}
	}
}

func (c *httpConn) Close() error { return c.conn.Close() }
