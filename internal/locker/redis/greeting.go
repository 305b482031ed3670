package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// greeting is what a new connection must answer before it is used.
type greeting func(ctx context.Context, c *connector, l *link) error

// greetServer learns the server's clock before the first request goes to it.
func greetServer(ctx context.Context, c *connector, l *link) error {
	r := reading{sent: c.now()}
	theirs, err := l.client.Time(ctx).Result()
	if err != nil {
		return c.notAServer(err)
	}
	r.micros, r.received = theirs.UnixMicro(), c.now()
	c.learn(r)
	return nil
}

// greetMaster also asks whether the server is a master, where our user may.
func greetMaster(ctx context.Context, c *connector, l *link) error {
	r := reading{sent: c.now()}
	pipe := l.client.Pipeline()
	theirs, role := pipe.Time(ctx), pipe.Do(ctx, "role")
	_, err := pipe.Exec(ctx)
	if theirs.Val().IsZero() { // else the error is about the role alone
		return c.notAServer(err)
	}
	r.micros, r.received = theirs.Val().UnixMicro(), c.now()
	switch is, err := readRole(role); {
	case err != nil && !forbidden(errorText(err)):
		return err
	case err != nil:
		c.lacks.denied(lackRole, c.address)
	case is != "master":
		return &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errNotMaster}
	}
	if role.Err() == nil {
		c.lacks.granted(lackRole)
	}
	c.learn(r)
	return nil
}

// greetSentinel asks for a sign of life.
func greetSentinel(ctx context.Context, _ *connector, l *link) error { return l.client.Ping(ctx).Err() }

func readRole(cmd *goredis.Cmd) (string, error) {
	fields, err := cmd.Slice()
	if err != nil {
		return "", err
	}
	if len(fields) == 0 {
		return "", errUnreadable
	}
	role, _ := fields[0].(string)
	return role, nil
}

func errorText(err error) string {
	text, _ := asReply(err)
	return text
}

func (c *connector) notAServer(err error) error {
	if unknownCommand(err) {
		return wrongKind(c.address, aServer, noServer)
	}
	return err
}

// learn takes in the first reading over a new connection.
func (c *connector) learn(r reading) {
	if step := c.clock.connected(r); step != 0 {
		c.log.Warn("the store's clock is another than before: it has stepped, or another server answers", "step", step)
	}
}
