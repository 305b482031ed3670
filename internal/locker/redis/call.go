package redis

import (
	"context"
	"errors"
	"fmt"
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

	id       string
	deadline time.Time
	state    atomic.Int32 // one of the states
	done     chan struct{}

	// Set before done is closed.
	reply   []any // without id and time; for a plain command its reply alone
	micros  int64 // the server's clock, if it was a script
	refused bool  // by an error reply
	err     error
}

// The states of a call.
const (
	queued    int32 = iota
	taken           // it is being sent, or has been
	abandoned       // its caller left before it was sent; it never will be
)

// take claims the call for sending; false means that its caller has left.
func (c *call) take() bool { return c.state.CompareAndSwap(queued, taken) }

// abandon withdraws the call; false means that it is too late for that.
func (c *call) abandon() bool { return c.state.CompareAndSwap(queued, abandoned) }

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
	words := make([]any, 0, 4+len(c.keys)+len(args))
	if whole {
		words = append(words, "eval", c.script.source)
	} else {
		words = append(words, "evalsha", c.script.sha)
	}
	words = append(words, strconv.Itoa(len(c.keys)))
	for _, key := range c.keys {
		words = append(words, key)
	}
	words = append(words, c.id)
	for _, arg := range args {
		words = append(words, arg)
	}
	return goredis.NewCmd(ctx, words...)
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
