package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// GuardError says that others who share the locks have another RestartGuard.
// One of them waits too short a time for a lock that another may still hold.
type GuardError struct{ Words string }

func (e *GuardError) Error() string { return e.Words }

// Guard returns for how long the server still grants nothing, since it may have
// lost its data; 0 if it grants, or is not guarded. From the first call on after
// the server has lost its data that time runs, whoever makes it. The errors are
// those of a request; one of StoreFailed is a [*GuardError] if the guards differ.
func (b *Backend) Guard(ctx context.Context) (left time.Duration, err error) {
	if b.guard == "" {
		return 0, nil
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	var c *call
	c = &call{
		script: markScript,
		keys:   []string{b.keys.marker()},
		args: func(func(locker.Instant) string) []string {
			return []string{b.keys.prefix, b.guardOf(c.run)}
		},
	}
	if err := b.send(ctx, toLook, c); err != nil {
		return 0, guardFailure(err)
	}
	ms, err := c.number(0)
	return time.Duration(ms) * time.Millisecond, err
}

// guardOf is what scripts are told of the guard: the run of the server to which
// they are sent, and how long it is to grant nothing if its data is another
// run's. It is empty without a guard.
func (b *Backend) guardOf(run string) string {
	switch {
	case b.guard == "":
		return ""
	case run == "":
		return "-"
	}
	return run + " " + b.guard
}

// guardFailure makes an error of the server's words that the guards differ.
func guardFailure(err error) error {
	var failure *locker.StoreError
	words, ok := replyIn(err)
	if !ok || !errors.As(err, &failure) || !strings.HasPrefix(words, "GUARDS ") {
		return err
	}
	told := *failure
	told.Err = &GuardError{strings.TrimPrefix(words, "GUARDS ")}
	return &told
}

// recovering is the answer of a server that grants nothing for a while.
func recovering(left time.Duration) error {
	return &locker.StoreError{
		Reason: locker.StoreRecovering, Certain: true,
		Err: fmt.Errorf("the server may have lost its data and grants nothing for %v more", left),
	}
}

// guarded is a greeting after which it is known which run of the server is at
// the other end. A server that has come back notices by it what it has lost,
// though nobody should ask for a lock.
func (f *nodes) guarded(greet greeting) greeting {
	config := f.config
	if config.RestartGuard == 0 {
		return greet
	}
	keys := layout{config.KeyPrefix}
	return func(ctx context.Context, c *connector, l *link) error {
		if err := greet(ctx, c, l); err != nil {
			if errors.Is(err, errNotMaster) {
				c.demoted(l)
			}
			return err
		}
		info, err := l.client.Info(ctx, "server").Result()
		if err != nil {
			return c.unguarded(err)
		}
		c.lacks.granted(lackGuard)
		run := infoFields(info)["run_id"]
		if run == "" {
			return nil // it grants nothing
		}
		guard := run + " " + millis(config.RestartGuard)
		if f.runs.replaced(run) {
			c.doubts.Add(1)
		}
		if err := c.settle(ctx, l, keys.marker(), guard); err != nil {
			return err
		}
		f.runs.use(run)
		l.run = run
		err = l.client.Eval(ctx, markScript.source, []string{keys.marker()}, "greeting", config.KeyPrefix, guard).Err()
		return c.turnedAway(l, err) // who asks for a lock is told what else is wrong
	}
}

// settle has the marker of a server that is in doubt made anew. It fails, and
// the doubt stays, if the marker may be as it was: by that the server would
// grant at once.
func (c *connector) settle(ctx context.Context, l *link, marker, guard string) error {
	doubts := c.doubts.Load()
	if doubts <= c.settled.Load() {
		return nil
	}
	if err := l.client.Eval(ctx, doubtScript.source, []string{marker}, "greeting", guard).Err(); err != nil {
		_ = c.turnedAway(l, err)
		return err
	}
	for settled := c.settled.Load(); settled < doubts && !c.settled.CompareAndSwap(settled, doubts); {
		settled = c.settled.Load()
	}
	return nil
}

// turnedAway returns err if the connection is of no use any more.
func (c *connector) turnedAway(l *link, err error) error {
	text, refused := asReply(err)
	if !refused {
		return err
	}
	meaning := readReply(text)
	if meaning.detour == demoted {
		c.demoted(l)
	}
	if meaning.redial {
		return err
	}
	return nil
}

// unguarded is called if a server does not tell which run it is. It may renew
// and release, and grants nothing.
func (c *connector) unguarded(err error) error {
	text, refused := asReply(err)
	if !refused || !forbidden(text) {
		return err
	}
	c.lacks.denied(lackGuard, c.address)
	return nil
}

// runs knows which run of which server decides on the locks, and which did
// before. One that comes back may have been a replica of another meanwhile, or
// have been passed over: either way it does not know what was granted then, and
// has the marker of its own run.
type runs struct {
	mu     sync.Mutex
	now    string
	former map[string]bool
}

// replaced tells whether a run was used before another.
func (r *runs) replaced(run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.former[run]
}

// use takes in which run is used from now on.
func (r *runs) use(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != "" && r.now != run {
		if r.former == nil {
			r.former = make(map[string]bool)
		}
		r.former[r.now] = true
	}
	r.now = run
	delete(r.former, run)
}
