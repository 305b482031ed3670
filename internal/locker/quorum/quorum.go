// Package quorum is a backend made of an odd number of independent backends, of
// which a majority decides: what is known as Redlock. It goes on while a
// minority is down, slow or empty.
//
// # Votes
//
// A claim is put to all members at the same time. It is granted once a majority
// has said yes and has recorded one and the same fencing token; the others
// finish in the background. A claim that gets no majority is taken back at every
// member that has granted it or may yet do so, and is never sent again: a late
// release must not meet a later grant of the same token. If that is because
// several have asked at the same time, the answer is [locker.ErrSplitVote], and
// the caller asks anew a moment later. That the lock is held is said only if one
// and the same lock is at a majority.
//
// # Leases
//
// Every member that says yes keeps the key from when it executes the request,
// which is after it was sent. So until a lease that is counted from the sending
// is over, a majority keeps the key, and any other majority has a member among
// these. A renewal counts once a majority confirms it, and a lock is lost once a
// majority no longer has it. A member that has lost a lock, or never had it,
// gets it back when a majority has confirmed it in that very round.
//
// # Fencing tokens
//
// Each member counts for itself, and the greatest of what a majority says can be
// had twice. So a token is told only when a majority has recorded it, and a
// member records only what is above all that it has recorded for the key. Any
// two majorities share a member, so of two grants that one has the greater token
// which came later. Members that are asked for a token above what any of their
// clocks says mostly agree at once; if not, those below the greatest are raised
// to it in a second round.
//
// # Lines
//
// Every member keeps a line of its own for those who wait, and wakes its head.
// A process asks when a majority has woken it. Of lines that differ nobody may
// be at the head of a majority; so a claim that one member grants may overtake
// at the others. The order of arrival is mostly kept, and not promised.
//
// # Data loss
//
// What a member has forgotten must not be granted anew while somebody may rely
// on it. That is up to the member, see [locker.Member].
package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// DefaultNodeTimeout is the NodeTimeout of a Config that has none.
const DefaultNodeTimeout = 150 * time.Millisecond

// Member is one of the backends, with a name for the log.
type Member struct {
	Name string
	locker.Member
}

// Config says which backends decide. Only Members must be set.
type Config struct {
	// Members are independent of each other; there must be an odd number of
	// them, at least 3. Processes exclude each other if they have the same.
	Members []Member

	// NodeTimeout bounds one claim to one member, so that it can be sent again
	// in time. 0 means DefaultNodeTimeout.
	NodeTimeout time.Duration

	Now locker.Clock // nil means locker.BootTime
	Log *slog.Logger // nil means silence
}

// Backend is a [locker.Backend], [locker.Queue], [locker.Inspector],
// [locker.Annotator] and [locker.Breaker] made of others.
type Backend struct {
	nodes   []*node
	need    int // how many are a majority
	timeout time.Duration
	now     locker.Clock
	log     *slog.Logger
	clocks  *clocks
	healing *healing
	doubts  *doubts
	crew    *crew
	cancel  context.CancelFunc // of the nodes' bailiffs
}

var (
	_ locker.Backend   = (*Backend)(nil)
	_ locker.Queue     = (*Backend)(nil)
	_ locker.Inspector = (*Backend)(nil)
	_ locker.Annotator = (*Backend)(nil)
	_ locker.Breaker   = (*Backend)(nil)
)

// New returns a Backend. Close it in the end, before its members.
func New(config Config) (*Backend, error) {
	n := len(config.Members)
	if n < 3 || n%2 == 0 {
		return nil, fmt.Errorf("quorum: there must be an odd number of members, at least 3, not %d", n)
	}
	if config.NodeTimeout < 0 {
		return nil, errors.New("quorum: negative timeout")
	}
	if config.NodeTimeout == 0 {
		config.NodeTimeout = DefaultNodeTimeout
	}
	if config.Now == nil {
		config.Now = locker.BootTime
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Backend{
		need: n/2 + 1, timeout: config.NodeTimeout, now: config.Now, log: config.Log,
		clocks: newClocks(n), healing: newHealing(), doubts: newDoubts(), crew: newCrew(), cancel: cancel,
	}
	for i, m := range config.Members {
		node := newNode(i, m, b)
		b.nodes = append(b.nodes, node)
		b.crew.start(func() { node.collect(ctx) })
	}
	return b, nil
}

// Close waits for what is on its way, which is bounded, and takes back what
// members have granted in vain as far as they answer. Later calls are refused.
func (b *Backend) Close() {
	b.cancel()
	b.crew.dismiss()
	var wg sync.WaitGroup
	for _, n := range b.nodes {
		wg.Go(n.settleUp)
	}
	wg.Wait()
}

var errClosed = &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errors.New("the backend is closed")}

// over is the certain answer to a caller that has already given up.
func over(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &locker.StoreError{Reason: locker.StoreTimeout, Certain: true, Err: errors.New("the caller had left before it was sent")}
}

// bounded gives ctx a deadline if it has none.
func (b *Backend) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 2*b.timeout)
}

// lastWords is for how long a caller whose time is over still listens. That of the
// requests to members ends in the same instant, and what becomes known by that may
// be certain: that a request was never sent, above all.
const lastWords = 2 * time.Millisecond

// heard returns once done is closed, or ctx is over; it says whether done is closed.
func heard(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	var patience time.Duration
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // else the requests go on
		patience = lastWords
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// detached returns a context for requests that outlive the caller who waits for
// a majority only. It ends when ctx was meant to, at the latest.
func detached(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	if most > 0 {
		if sooner := time.Now().Add(most); sooner.Before(deadline) {
			deadline = sooner
		}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

// crew is the goroutines that a Backend has started.
type crew struct {
	mu        sync.Mutex
	changed   sync.Cond
	working   int
	dismissed bool
}

func newCrew() *crew {
	c := new(crew)
	c.changed.L = &c.mu
	return c
}

// start runs f in a goroutine, or returns false once the crew is dismissed.
func (c *crew) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dismissed {
		return false
	}
	c.working++
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.working--
			c.changed.Broadcast()
		}()
		f()
	}()
	return true
}

// dismiss waits until all have ended.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	for c.working > 0 {
		c.changed.Wait()
	}
}
