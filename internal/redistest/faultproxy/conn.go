package faultproxy

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// link is one client's connection and the proxy's own to the server. Requests
// and replies are passed on by a goroutine each. The server's side stays open
// until all that was sent has been answered, even if the client has left.
type link struct {
	p      *Proxy
	n      int
	client net.Conn
	server net.Conn

	mu         sync.Mutex
	due        []exchange // in the order in which the replies will come
	subscribed bool
	complete   bool // no more requests will come
}

// exchange is a command whose reply is due.
type exchange struct {
	action Action
	copy   bool // of the command before it
}

// serve serves a connection to its end.
func (p *Proxy) serve(n int, client net.Conn) {
	if connect := p.connect.Load(); connect != nil {
		switch (*connect)(n) {
		case ConnectReset:
			happened(figures.TurnedAway)
			reset(client)
			return
		case ConnectBlackHole:
			happened(figures.BlackHole)
			_, _ = io.Copy(io.Discard, client) // until either side closes it
			return
		}
	}
	server := p.dial()
	if server == nil {
		reset(client)
		return
	}
	defer p.untrack(server)
	l := &link{p: p, n: n, client: client, server: server}
	p.running.Go(func() {
		l.passRequests()
		l.finish()
	})
	l.passReplies()
}

// passRequests reads commands until the client leaves.
func (l *link) passRequests() {
	r := bufio.NewReader(l.client)
	for {
		c, raw, err := readCommand(r)
		if err != nil {
			return
		}
		c.Conn = l.n
		c = l.p.arrived(c)
		var a Action
		if rule := l.p.rule.Load(); rule != nil {
			a = (*rule)(c)
		}
		switch {
		case a.Reset:
			happened(figures.ConnectionCut)
			reset(l.client)
			return
		case a.BlackHole:
			happened(figures.BlackHole)
			_, _ = io.Copy(io.Discard, r) // until either side closes it
			return
		}
		if a.RequestDelay > 0 || a.Hold != nil {
			happened(figures.RequestLate)
		}
		if !l.p.pass(a.RequestDelay, a.Hold) {
			return
		}
		if a.Repeat != NoRepeat {
			happened(figures.Repeated)
		}
		if a.Repeat == RepeatElsewhere {
			l.p.running.Go(func() { l.p.sendElsewhere(raw) })
		}
		l.expect(c, a)
		if a.Repeat == RepeatInPlace {
			raw = append(raw, raw...)
		}
		if !l.p.write(l.server, raw, a.BytesPerSecond) {
			return
		}
	}
}

// passReplies reads replies until the server's side is closed, which finish
// and due see to once all have come.
func (l *link) passReplies() {
	defer l.client.Close()
	r := bufio.NewReader(l.server)
	for {
		v, err := readValue(r)
		if err != nil {
			return
		}
		x, ok := l.answered(v)
		if !ok {
			l.p.write(l.client, v.raw, 0)
			continue
		}
		if !x.copy {
			l.passReply(v.raw, x.action)
		}
		l.closeIfDone()
	}
}

func (l *link) passReply(raw []byte, a Action) {
	if a.ReplyDelay > 0 {
		happened(figures.ReplyLate)
	}
	if !l.p.pass(a.ReplyDelay, nil) {
		return
	}
	switch {
	case a.LoseReply:
		happened(figures.ReplyLost)
		_ = l.client.Close()
		return
	case a.SwallowReply:
		happened(figures.ReplyLost)
		return
	case a.Replace != nil:
		happened(figures.ReplySpoilt)
		raw = a.Replace(raw)
	}
	l.p.write(l.client, raw, a.BytesPerSecond) // the client may have left
}

func happened(what figures.Row) { figures.Count(what, figures.Wire, 1) }

// expect notes that a reply to the command will come.
func (l *link) expect(c Command, a Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.subscribes() {
		l.subscribed = true
		return
	}
	l.due = append(l.due, exchange{action: a})
	if a.Repeat == RepeatInPlace {
		l.due = append(l.due, exchange{copy: true})
	}
}

// answered returns the exchange that the value ends; false if it is not a
// reply to any command.
func (l *link) answered(v value) (exchange, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.push || l.subscribed && v.message() || len(l.due) == 0 {
		return exchange{}, false
	}
	x := l.due[0]
	l.due = l.due[1:]
	return x, true
}

func (l *link) finish() {
	l.mu.Lock()
	l.complete = true
	l.mu.Unlock()
	l.closeIfDone()
}

// closeIfDone closes the server's side if nothing more will come from it.
func (l *link) closeIfDone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complete && len(l.due) == 0 {
		_ = l.server.Close()
	}
}

// sendElsewhere sends a command on a connection of its own and drops the reply.
func (p *Proxy) sendElsewhere(raw []byte) {
	server := p.dial()
	if server == nil {
		return
	}
	defer p.untrack(server)
	if p.write(server, raw, 0) {
		_, _ = readValue(bufio.NewReader(server)) // so that it has been executed before the end
	}
}

// slices is into how many pieces a limited write cuts a second.
const slices = 50

// write writes at most bytesPerSecond, if that is not 0. It is false if not
// all could be written.
func (p *Proxy) write(c net.Conn, raw []byte, bytesPerSecond int) bool {
	if bytesPerSecond <= 0 {
		_, err := c.Write(raw)
		return err == nil
	}
	for len(raw) > 0 {
		piece := min(len(raw), max(1, bytesPerSecond/slices))
		pause := time.Second * time.Duration(piece) / time.Duration(bytesPerSecond)
		if !p.pass(pause, nil) {
			return false
		}
		if _, err := c.Write(raw[:piece]); err != nil {
			return false
		}
		raw = raw[piece:]
	}
	return true
}

// reset closes a connection so that its peer gets a reset, where the network
// knows that.
func reset(c net.Conn) {
	beneath := c
	if tracked, ok := c.(*surelyClosed); ok {
		beneath = tracked.Conn
	}
	if tcp, ok := beneath.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
