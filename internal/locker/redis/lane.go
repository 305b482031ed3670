package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// lane is one connection of a pipeline and the goroutine that uses it.
type lane struct {
	p    *pipeline
	link *link           // nil without a connection
	wake chan struct{}   // there may be something to send
	warm chan chan error // connect, and say how it went

	linked bool // there is a link; under the pipeline's mutex
}

// run sends what is queued, batch by batch, until the pipeline is closed.
func (l *lane) run() {
	defer l.drop()
	for l.p.waiting(l) || l.sleep() {
		if l.p.ctx.Err() != nil {
			return
		}
		// Connect before taking anything: what is still queued when its
		// deadline passes has certainly not been executed.
		if err := l.connect(); err != nil {
			if l.p.unreachable(l, err) && !l.sleep() {
				return
			}
			continue
		}
		if batch := l.p.next(); len(batch) > 0 {
			l.send(batch)
		}
	}
}

// sleep returns true once the idle lane is woken, false when the pipeline is
// closed.
func (l *lane) sleep() bool {
	for {
		select {
		case <-l.wake:
			return true
		case answer := <-l.warm:
			answer <- l.connect()
		case <-l.p.ctx.Done():
			return false
		}
	}
}

// connect makes sure that the lane has a connection which can be used.
func (l *lane) connect() error {
	if l.link != nil && l.link.wire.quiet() {
		return nil
	}
	l.drop()
	link, err := l.p.connector.connect(l.p.ctx)
	if err != nil {
		return err
	}
	l.link = link
	l.p.connected(l)
	return nil
}

// drop closes the connection, if there is one.
func (l *lane) drop() {
	if l.link == nil {
		return
	}
	l.link.close()
	l.link = nil
	l.p.disconnected(l)
}

// send sends the calls in one write and answers them all. Scripts that the
// server does not know yet are sent again in full.
func (l *lane) send(batch []*call) {
	ctx, cancel := context.WithDeadline(l.p.ctx, latest(batch))
	defer cancel()
	unknown := l.exchange(ctx, batch, false)
	if len(unknown) > 0 {
		l.exchange(ctx, unknown, true)
	}
}

// latest returns the deadline by which all callers have left.
func latest(batch []*call) time.Time {
	var deadline time.Time
	for _, c := range batch {
		if c.deadline.After(deadline) {
			deadline = c.deadline
		}
	}
	return deadline
}

// exchange makes one round trip. It answers the calls, except those whose
// script the server does not know, which it returns. whole sends the scripts
// in full; then none is returned.
func (l *lane) exchange(ctx context.Context, batch []*call, whole bool) (unknown []*call) {
	if l.link == nil { // lost in the round trip before
		for _, c := range batch {
			c.fail(callFailure(context.Canceled, false))
		}
		return nil
	}
	cmds := make([]goredis.Cmder, len(batch))
	now := l.p.connector.now()
	at := func(i locker.Instant) string {
		return strconv.FormatInt(l.p.connector.clock.translate(i, now), 10)
	}
	for i, c := range batch {
		cmds[i] = c.command(ctx, whole, at)
	}
	r := reading{sent: l.p.connector.now()}
	l.link.wire.sent = false
	l.link.transmit(ctx, cmds)
	r.received = l.p.connector.now()

	answered := batch[:0:0]
	usable := true
	for i, c := range batch {
		reply, err := cmds[i].(*goredis.Cmd).Result()
		text, refused := asReply(err)
		switch {
		case refused && !whole && strings.HasPrefix(text, "NOSCRIPT"):
			unknown = append(unknown, c)
			continue
		case refused:
			usable = usable && !readReply(text).redial
			c.refused, c.err = true, replyFailure(text)
		case err != nil && err != goredis.Nil:
			usable = false
			c.err = callFailure(err, l.link.wire.sent)
		default:
			if err := c.read(reply); err != nil {
				usable = false
				c.err = &locker.StoreError{Reason: locker.StoreBroken, Err: err}
			} else if c.micros != 0 {
				r.micros = c.micros
				l.observe(r)
			}
		}
		answered = append(answered, c)
	}
	// Only then the answers: a caller that tries again at once is not to meet
	// the connection that failed it.
	if !usable {
		l.drop()
	}
	for _, c := range answered {
		close(c.done)
	}
	return unknown
}

func (l *lane) observe(r reading) {
	if step := l.p.connector.clock.observe(r); step != 0 {
		l.p.connector.log.Warn("the store's clock has stepped", "step", step)
	}
}

// transmit writes the commands at once and reads their answers into them.
func (l *link) transmit(ctx context.Context, cmds []goredis.Cmder) {
	if len(cmds) == 1 {
		_ = l.client.Process(ctx, cmds[0]) // the command has the error too
		return
	}
	pipe := l.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
