package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// With Config.MinReplicas a WAIT goes behind calls, in the same write over the
// same connection: it tells how many replicas have all that the server had written
// when it was done with the latest of these calls that wrote. So each call whose
// effect is to be counted writes something, also if that was there before. A call
// that the server has turned away, or did not know the script of, was not carried
// out and is sent again with another WAIT.

// waitShare is the part of a call's time that replicas have to acknowledge it.
// The rest is for undoing a grant that too few did.
const waitShare = 2

// waitBehind returns the command that waits for replicas, if any of the calls
// needs them. It blocks the connection and nobody else.
func (p *pipeline) waitBehind(ctx context.Context, batch []*call) *goredis.Cmd {
	if p.replicas == 0 {
		return nil
	}
	for _, c := range batch {
		if c.replicated {
			return goredis.NewCmd(ctx, "wait", p.replicas, patience(ctx, p.timeout))
		}
	}
	return nil
}

// patience is for how many ms replicas are waited for.
func patience(ctx context.Context, timeout time.Duration) int64 {
	deadline, _ := ctx.Deadline()
	left := min(time.Until(deadline), timeout) / waitShare
	return max(1, left.Milliseconds()) // with 0 WAIT waits for ever
}

// replicasOf reads the answer to a WAIT, or why there is none. It is nil where
// there was none to be.
func replicasOf(wait *goredis.Cmd) (n int, err error) {
	if wait == nil {
		return 0, nil
	}
	n, err = wait.Int()
	if text, ok := asReply(err); ok {
		return 0, replyFailure(text)
	}
	if err != nil {
		return 0, errNoCount
	}
	return n, nil
}

// errNoCount is that the connection ended before a WAIT was answered.
var errNoCount = &locker.StoreError{Reason: locker.StoreBroken, Err: errors.New("it is not known how many replicas have it")}

// acknowledged returns a grant if enough replicas have it, and else undoes it.
func (b *Backend) acknowledged(ctx context.Context, claim locker.Claim, c *call, grant locker.Grant) (locker.Grant, error) {
	if c.acked >= b.minReplicas {
		grant.Acked = c.acked
		return grant, nil
	}
	failure := b.notReplicated(c)
	undone := b.releaseNow(ctx, locker.Surrender{Key: claim.Key, Token: claim.Token, Holder: claim.Holder})
	failure.Certain = undone == nil || errors.Is(undone, locker.ErrTaken) || errors.Is(undone, locker.ErrGone)
	return locker.Grant{}, failure
}

// notReplicated is the failure of a write that too few replicas have. It has
// happened all the same.
func (b *Backend) notReplicated(c *call) *locker.StoreError {
	failure := &locker.StoreError{
		Reason: locker.StoreNotReplicated,
		Err:    fmt.Errorf("%d of %d replicas have acknowledged it", c.acked, b.minReplicas),
	}
	var refused *locker.StoreError
	if errors.As(c.ackErr, &refused) {
		failure.Err = refused
		if refused.Reason == locker.StoreAuthFailed { // we may not run WAIT
			failure.Reason = refused.Reason
		}
	}
	return failure
}

// releaseNow gives one lock back.
func (b *Backend) releaseNow(ctx context.Context, s locker.Surrender) error {
	return b.Release(ctx, []locker.Surrender{s})[0].Err
}

// replicasThere fails if so few replicas are there that nothing can be granted,
// or if we may not ask. It writes what no lock can be, for a moment.
func (b *Backend) replicasThere(ctx context.Context, n *node) error {
	if b.minReplicas == 0 {
		return nil
	}
	name := b.keys.prefix + "#ping:{a}"
	if b.servers.apart() {
		names := b.nameOn(n)
		if names == nil {
			return nil
		}
		name = names[0]
	}
	c := &call{plain: []any{"set", name, "", "px", 1}, replicated: true}
	if err := n.grant.do(ctx, c); err != nil {
		return err
	}
	if c.acked < b.minReplicas {
		failure := b.notReplicated(c)
		failure.Certain = true
		return failure
	}
	return nil
}
