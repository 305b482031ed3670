package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay passes connections on to a server, and its answers back later, if it is
// told to. Answers that come close together wait at the same time.
type relay struct {
	listener net.Listener
	upstream string
	delay    atomic.Int64 // nanoseconds

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	busy   sync.WaitGroup
}

func startRelay(upstream string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, upstream: upstream, conns: make(map[net.Conn]bool)}
	r.busy.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			r.busy.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.busy.Wait()
}

// keep notes a connection so that close ends it; false after that.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) forget(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

func (r *relay) serve(client net.Conn) {
	if !r.keep(client) {
		return
	}
	defer r.forget(client)
	server, err := net.Dial("tcp", r.upstream)
	if err != nil || !r.keep(server) {
		return
	}
	defer r.forget(server)
	var both sync.WaitGroup
	both.Go(func() { r.pass(server, client, false) })
	r.pass(client, server, true)
	both.Wait()
}

// part is bytes on their way.
type part struct {
	bytes []byte
	due   time.Time
}

// pass copies until one of the connections ends, and then ends the other.
func (r *relay) pass(to, from net.Conn, later bool) {
	parts := make(chan part, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if n > 0 {
			p := part{bytes: append([]byte(nil), buffer[:n]...)}
			if later {
				p.due = time.Now().Add(time.Duration(r.delay.Load()))
			}
			parts <- p
		}
		if err != nil {
			break
		}
	}
	close(parts)
	writing.Wait()
}
