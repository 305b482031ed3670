package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// lane is one connection of a pipeline, and the goroutine that sends over it
// what is queued. While nothing is, a caller may borrow it.
type lane struct {
	p    *pipeline
	wake chan struct{}   // there may be something to send
	warm chan chan error // connect, and say how it went

	use  sync.Mutex // held by whoever uses the link
	link *link      // nil without a connection

	linked bool // there is a link; under the pipeline's mutex
}

// run sends what is queued, batch by batch, until the pipeline is closed.
func (l *lane) run() {
	defer func() {
		l.use.Lock()
		defer l.use.Unlock()
		l.dropLocked()
	}()
	idle := true // so it was made
	for {
		if idle && !l.sleep() || l.p.ctx.Err() != nil {
			return
		}
		answered, err := l.sendQueued()
		if err != nil && l.p.unreachable(l, err) {
			idle = true
			continue
		}
		idle = !l.p.waiting(l)
		// Only now, so that a caller who goes on at once finds the lane idle
		// and does not have another connection opened.
		for _, c := range answered {
			close(c.done)
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
			l.use.Lock()
			err := l.connectLocked()
			l.use.Unlock()
			answer <- err
		case <-l.p.ctx.Done():
			return false
		}
	}
}

// sendQueued sends one batch of what is queued and returns it with its
// answers, of which nobody has been told. It fails if there is no connection,
// and has taken nothing then: what is still queued when its deadline passes
// has certainly not been executed.
func (l *lane) sendQueued() ([]*call, error) {
	l.use.Lock()
	defer l.use.Unlock()
	if err := l.connectLocked(); err != nil {
		return nil, err
	}
	batch := l.p.next()
	if len(batch) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithDeadline(l.p.ctx, latest(batch))
	defer cancel()
	l.sendLocked(ctx, batch)
	return batch, nil
}

// sendOne sends a call from its caller's goroutine over the borrowed lane, and
// gives that back. It returns false, with nothing sent, if the lane has no
// usable connection after all.
//
// Within it the driver only writes to a socket and reads from it, and that is
// cut when ctx ends; so the caller leaves in time.
func (l *lane) sendOne(ctx context.Context, c *call) (sent bool) {
	var calls uint64
	defer func() { l.p.giveBack(l, calls) }()
	if !l.use.TryLock() { // it is being connected
		return false
	}
	defer l.use.Unlock()
	if !l.usableLocked() {
		l.dropLocked()
		return false
	}
	w := l.link.wire
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer stop()
	l.sendLocked(ctx, []*call{c})
	calls = 1
	return true
}

// connectLocked makes sure that there is a connection which can be used.
func (l *lane) connectLocked() error {
	if l.usableLocked() {
		return nil
	}
	l.dropLocked()
	link, err := l.p.connector.connect(l.p.ctx)
	if err != nil {
		l.p.notConnected()
		return err
	}
	l.link = link
	l.p.connected(l)
	return nil
}

// usableLocked tells whether there is a connection which can be used.
func (l *lane) usableLocked() bool {
	return l.link != nil && l.link.era == l.p.connector.era.Load() && l.link.wire.quiet()
}

// dropLocked closes the connection, if there is one.
func (l *lane) dropLocked() {
	if l.link == nil {
		return
	}
	l.link.close()
	l.link = nil
	l.p.disconnected(l)
}

// sendLocked sends the calls in one write and sets the answers of all. Scripts
// that the server does not know yet are sent again in full. ctx must have a
// deadline.
func (l *lane) sendLocked(ctx context.Context, batch []*call) {
	if unknown := l.exchangeLocked(ctx, batch, false); len(unknown) > 0 {
		l.exchangeLocked(ctx, unknown, true)
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

// exchangeLocked makes one round trip. It sets the answers of the calls, except
// those whose script the server does not know, which it returns. whole sends
// the scripts in full; then none is returned.
func (l *lane) exchangeLocked(ctx context.Context, batch []*call, whole bool) (unknown []*call) {
	if l.link == nil { // lost in the round trip before
		for _, c := range batch {
			c.err = &locker.StoreError{Reason: locker.StoreBroken, Certain: true, Err: errors.New("the connection ended before the script was sent in full")}
		}
		return nil
	}
	cmds := make([]*goredis.Cmd, len(batch))
	var askings map[*call]*goredis.Cmd
	sent := make([]goredis.Cmder, 0, len(batch))
	r := reading{sent: l.p.connector.now()}
	at := func(i locker.Instant) string {
		return strconv.FormatInt(l.p.connector.clock.translate(i, r.sent), 10)
	}
	for i, c := range batch {
		if c.asking {
			if askings == nil {
				askings = make(map[*call]*goredis.Cmd)
			}
			askings[c] = goredis.NewCmd(ctx, "asking")
			sent = append(sent, askings[c])
		}
		c.run = l.link.run
		cmds[i] = c.command(ctx, whole, at)
		sent = append(sent, cmds[i])
	}
	wait := l.p.waitBehind(ctx, batch)
	if wait != nil {
		sent = append(sent, wait)
	}
	l.link.wire.sent = false
	l.link.transmit(ctx, sent)
	r.received = l.p.connector.now()
	acked, ackErr := replicasOf(wait)

	usable := ackErr != error(errNoCount)
	for i, c := range batch {
		reply, err := cmds[i].Result()
		text, refused := asReply(err)
		if asking := askings[c]; refused && asking != nil && asking.Err() != nil {
			err = asking.Err() // which the other only follows from
			text, refused = asReply(err)
		}
		switch {
		case refused && !whole && strings.HasPrefix(text, "NOSCRIPT"):
			unknown = append(unknown, c)
		case refused:
			meaning := readReply(text)
			usable = usable && !meaning.redial
			if meaning.detour == demoted {
				l.p.connector.demoted(l.link)
			}
			c.err = replyFailure(text)
		case err != nil && err != goredis.Nil:
			usable = false
			c.err = l.failureLocked(ctx, err)
		default:
			c.acked, c.ackErr = acked, ackErr
			if err := c.read(reply); err != nil {
				usable = false
				c.err = &locker.StoreError{Reason: locker.StoreBroken, Err: err}
			} else if c.micros != 0 {
				r.micros = c.micros
				l.observe(r)
			}
		}
	}
	if !usable {
		l.dropLocked()
	}
	return unknown
}

// failureLocked translates an error of the driver in the latest round trip.
func (l *lane) failureLocked(ctx context.Context, err error) error {
	if ctx.Err() != nil { // the connection was cut for that
		err = ctx.Err()
	}
	return callFailure(err, l.link.wire.sent)
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
