package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

const (
	storeTimeout = 300 * time.Millisecond
	simMaxTTL    = 4 * time.Second
	simGuard     = simMaxTTL + time.Second
	simLife      = 30 * time.Second // of virtual time
	simBudget    = 10 * time.Second // of real time
)

// simulation is a few sidecars and the nodes of a quorum, in virtual time, with
// everything going wrong that a quorum has to survive.
type simulation struct {
	t      testing.TB
	seed   uint64
	start  time.Time
	guard  time.Duration // how long a node that has lost its data grants nothing
	nodes  []*simNode
	keys   []locker.Key
	holds  lockertest.Checker
	grants int
	calls  int
	broken int

	mu      sync.Mutex
	traced  trace
	running sync.WaitGroup
}

// random returns a source of its own for each part.
func (s *simulation) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

func (s *simulation) now() locker.Instant {
	return locker.Instant(time.Hour) + locker.Instant(time.Since(s.start))
}

// simNode is a store that can lose its data, and notices that.
type simNode struct {
	*memory.Backend
	sim *simulation

	mu        sync.Mutex
	recovered locker.Instant // it grants nothing before
	down      bool           // nothing reaches it
	slow      time.Duration  // it takes up to that long to execute a request
	clock     time.Duration  // by which its clock is ahead of ours
}

func (s *simulation) newNode(wall time.Duration) *simNode {
	n := &simNode{sim: s}
	n.Backend = memory.New(memory.Config{
		Now:  func() locker.Instant { return s.now().Add(n.ahead()) },
		Wall: func() time.Time { return time.Now().Add(wall + n.ahead()) },
	})
	return n
}

func (n *simNode) ahead() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock
}

func (n *simNode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// forget has the node lose all that it knows, as a server without persistence
// does that is started again.
func (n *simNode) forget() {
	n.Wipe()
	n.sim.trace("a node forgets")
	n.set(func() { n.recovered = n.sim.now().Add(n.sim.guard) })
}

var errRecovering = &locker.StoreError{Reason: locker.StoreRecovering, Certain: true}

// recovering is the node's restart guard.
func (n *simNode) recovering() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sim.now() < n.recovered {
		return errRecovering
	}
	return nil
}

func (n *simNode) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	if err := n.recovering(); err != nil {
		return locker.Grant{}, err
	}
	return n.Backend.Acquire(ctx, c)
}

func (n *simNode) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	if err := n.recovering(); err != nil {
		return locker.Grant{}, err
	}
	return n.Backend.AcquireInLine(ctx, c, t)
}

func (n *simNode) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	if err := n.recovering(); err != nil {
		return n.Release(ctx, []locker.Surrender{s})[0], locker.Grant{}, err
	}
	return n.Backend.HandOver(ctx, s, c, t)
}

// process is one sidecar, with its own view of which nodes there are.
type process struct {
	*locker.Locker
	sim    *simulation
	name   string
	quorum *quorum.Backend
	links  []*link
	alive  context.Context
	kill   func()
}

// link is what is between a process and a node.
type link struct {
	*lockertest.Faulty
	node *simNode

	mu   sync.Mutex
	cut  bool // nothing passes
	deaf bool // requests pass, and no reply does
}

func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

var (
	errRefused = &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true}
	errCut     = &locker.StoreError{Reason: locker.StoreBroken}
)

// plan makes the calls of a process to a node fail.
func (l *link) plan(random *rand.Rand) lockertest.Plan {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) + 1 }
	return func(c lockertest.Call) (f lockertest.Fault) {
		l.mu.Lock()
		cut, deaf := l.cut, l.deaf
		l.mu.Unlock()
		l.node.mu.Lock()
		down, slow := l.node.down, l.node.slow
		l.node.mu.Unlock()
		switch {
		case down:
			f.Refuse = errRefused
		case cut && random.IntN(2) == 0:
			f.Refuse = errRefused
		case cut:
			f.Refuse = errCut // after a while, like a connection that hangs
		case deaf:
			f.LoseReply, f.RequestDelay = true, upTo(storeTimeout)
		default:
			f.RequestDelay, f.ReplyDelay = upTo(time.Millisecond), upTo(time.Millisecond)
		}
		if slow > 0 {
			f.RequestDelay += upTo(slow)
		}
		switch random.IntN(40) {
		case 0:
			f.LoseReply = true
		case 1:
			f.RequestDelay += upTo(2 * storeTimeout)
		case 2:
			f.ReplyDelay += upTo(2 * storeTimeout)
		case 3:
			// As a connection may deliver it: again, though not after answers to
			// what was sent later.
			if c.Op != lockertest.OpAcquireInLine && c.Op != lockertest.OpHandOver {
				f.Duplicates, f.DuplicateDelay = 1, upTo(5*time.Millisecond)
			}
		}
		if c.Op == lockertest.OpRenew && f.Duplicates > 0 {
			f.DuplicateDelay = 0
		}
		return f
	}
}

// newProcess starts a sidecar.
func (s *simulation) newProcess(name string, stream uint64) *process {
	p := &process{sim: s, name: name}
	var members []quorum.Member
	for i, n := range s.nodes {
		l := &link{node: n}
		l.Faulty = lockertest.NewFaulty(traced{n, i}, l.plan(s.random(stream+uint64(i))))
		p.links = append(p.links, l)
		members = append(members, quorum.Member{Name: fmt.Sprint("node ", i), Member: l.Member()})
	}
	var err error
	if p.quorum, err = quorum.New(quorum.Config{Members: members, Now: s.now}); err != nil {
		s.t.Fatal(err)
	}
	dog := renewer.New(s.now)
	p.Locker, err = locker.New(locker.Config{Holder: name, StoreTimeout: storeTimeout, Now: s.now}, p.quorum, dog)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.alive = ctx
	var parts sync.WaitGroup
	parts.Go(func() { dog.Run(ctx, p.Locker) })
	parts.Go(func() { p.Run(ctx) })
	p.kill = sync.OnceFunc(func() {
		cancel()
		parts.Wait()
	})
	return p
}

// end takes the process down.
func (p *process) end() {
	p.kill()
	p.quorum.Close()
	for _, l := range p.links {
		calls, _ := l.Counts()
		p.sim.calls += calls
		l.Figures(figures.VirtualRedlock)
		l.Close()
	}
}
