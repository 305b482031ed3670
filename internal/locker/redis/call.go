package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// call is one request to a server: a script, or a plain command.
type call struct {
	script *script
	keys   []string
	// args are the script's arguments after the id. They are asked for when
	// the call is about to be sent; at turns an instant into the server's
	// time.
	args func(at func(locker.Instant) string) []string

	plain []any // the command, if there is no script

	replicated bool // its write counts only if enough replicas have it

	// companions names what else the script may make; nil if it makes nothing.
	companions func() []string

	// Set by whoever sends the call.
	node   *node                   // where it was sent last
	which  []int                   // for whose verdicts it is, in a batch
	part   func(which []int) *call // makes a call for some of them
	check  func()                  // looks at their verdicts again
	via    *node                   // where it is to be sent next, whoever has its slot
	asking bool                    // the slot is on its way there
	fully  bool                    // its companions are to be there as well

	run      string // of the server, if it is guarded: where the call is being sent
	id       string
	deadline time.Time
	state    atomic.Int32 // one of the states
	done     chan struct{}

	// Set before done is closed.
	reply  []any // without id and time; for a plain command its reply alone
	micros int64 // the server's clock, if it was a script
	acked  int   // replicas that have what was written
	ackErr error // why that is not known
	err    error
}

// The states of a call.
const (
	queued    int32 = iota
	taken           // it is being sent, or has been
	refused         // it is being failed, or has been, without being sent
	abandoned       // its caller left before it was sent; it never will be
)

// take claims the call, for sending (taken) or for failing (refused); false
// means that its caller has left.
func (c *call) take(as int32) bool { return c.state.CompareAndSwap(queued, as) }

// abandon withdraws the call; false means that it is too late for that.
func (c *call) abandon() bool { return c.state.CompareAndSwap(queued, abandoned) }

// slot is that of the call's locks, which have the same; 0 without any.
func (c *call) slot() int {
	if len(c.keys) == 0 {
		return 0
	}
	return slotOf(c.keys[0])
}

// divided returns calls that ask for one lock each what the call asks for many.
// While a slot is on its way, some of its locks are here and others there.
func (c *call) divided() []*call {
	var calls []*call
	for i := range c.which {
		calls = append(calls, c.part(c.which[i:i+1]))
	}
	return calls
}

// again makes an answered call ready to be sent once more.
func (c *call) again() {
	c.state.Store(queued)
	c.reply, c.micros, c.acked, c.ackErr, c.err = nil, 0, 0, nil, nil
}

func (c *call) fail(err error) {
	c.err = err
	close(c.done)
}

// command returns what is sent: the script's name, or all of it.
func (c *call) command(ctx context.Context, whole bool, at func(locker.Instant) string) *goredis.Cmd {
	if c.script == nil {
		return goredis.NewCmd(ctx, c.plain...)
	}
	args := c.args(at)
	keys := c.keys
	if c.fully {
		keys = slices.Concat(keys, c.companions())
	}
	name, text := "evalsha", c.script.sha
	if whole {
		name, text = "eval", c.script.source
	}
	words := slices.Concat([]string{text, strconv.Itoa(len(keys))}, keys, []string{c.id}, args)
	sent := make([]any, 0, 1+len(words))
	sent = append(sent, name)
	for i := range words {
		sent = append(sent, &words[i]) // a string itself would be copied to memory of its own
	}
	return goredis.NewCmd(ctx, sent...)
}

var errForeignReply = errors.New("the answer belongs to another request")

// read takes the driver's result for the call apart. An error means that the
// connection is out of step and must not be used again.
func (c *call) read(result any) error {
	if c.script == nil {
		c.reply = []any{result}
		return nil
	}
	fields, ok := result.([]any)
	if !ok || len(fields) < 2 {
		return errUnreadable
	}
	if id, _ := fields[0].(string); id != c.id {
		return errForeignReply
	}
	stamp, _ := fields[1].(string)
	micros, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || micros <= 0 {
		return errUnreadable
	}
	c.reply, c.micros = fields[2:], micros
	return nil
}

// text returns field i of the reply as a string.
func (c *call) text(i int) (string, error) {
	if i >= len(c.reply) {
		return "", unreadable("the answer is too short")
	}
	s, ok := c.reply[i].(string)
	if !ok {
		return "", unreadable(fmt.Sprintf("the answer has a %T where a string belongs", c.reply[i]))
	}
	return s, nil
}

// number returns field i of the reply, an integer or the text of one.
func (c *call) number(i int) (int64, error) {
	if i < len(c.reply) {
		if n, ok := c.reply[i].(int64); ok {
			return n, nil
		}
	}
	s, err := c.text(i)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, unreadable("the answer has no number where one belongs")
	}
	return n, nil
}

func unreadable(why string) error {
	return &locker.StoreError{Reason: locker.StoreBroken, Err: errors.New(why)}
}
