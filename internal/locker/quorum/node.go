package quorum

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// node is a member, what is on its way to it that may put a token there, and
// what is still to be taken back from it.
type node struct {
	locker.Member
	index   int
	name    string
	timeout time.Duration
	now     locker.Clock
	log     *slog.Logger
	clocks  *clocks
	wake    chan struct{} // to collect

	mu        sync.Mutex
	coming    map[locker.Token]arrival
	sweepAt   int // how many of coming are worth a look for those that are over
	debts     map[locker.Token]debt
	taking    int            // debts that are just being taken back
	failures  int            // of the bailiff, in a row
	restUntil locker.Instant // it does not try again before
}

func newNode(i int, m Member, b *Backend) *node {
	return &node{
		Member: m.Member, index: i, name: m.Name, timeout: b.timeout, now: b.now, log: b.log, clocks: b.clocks,
		wake: make(chan struct{}, 1), coming: make(map[locker.Token]arrival), debts: make(map[locker.Token]debt),
	}
}

// arrival is a token that requests may put to the member which are on their way,
// or about to be sent.
type arrival struct {
	requests int            // that may yet be sent, or have not been answered
	until    locker.Instant // none is executed later
	doubtful bool           // one was given up and may yet be executed
}

func (a arrival) over(now locker.Instant) bool {
	return now > a.until || a.requests == 0 && !a.doubtful
}

// lateSlack is by how much a member may be late in refusing a request whose time
// is over.
const lateSlack = 10 * time.Millisecond

// expect takes in that a request will be sent that may put the token there until
// an instant. What gives the token back meanwhile comes back for it, though it
// be executed before. It must be followed by arrived.
func (n *node) expect(token locker.Token, until locker.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.coming[token]
	a.requests++
	a.until = max(a.until, until.Add(lateSlack))
	n.coming[token] = a
	if len(n.coming) >= n.sweepAt {
		now := n.now()
		for token, a := range n.coming {
			if a.over(now) {
				delete(n.coming, token)
			}
		}
		n.sweepAt = 2*len(n.coming) + 64
	}
}

// doubt takes in that such a request was not answered, and may yet be executed.
func (n *node) doubt(token locker.Token) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.coming[token]; ok {
		a.doubtful = true
		n.coming[token] = a
	}
}

// arrived takes in that such a request is over.
func (n *node) arrived(token locker.Token) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.coming[token]
	if !ok {
		return // it was over before it was answered
	}
	a.requests--
	if now := n.now(); a.over(now) {
		delete(n.coming, token)
		n.hastenLocked(token, now)
	} else {
		n.coming[token] = a
	}
}

// mayComeLocked returns until when the token may yet be put there, if it may.
func (n *node) mayComeLocked(token locker.Token, now locker.Instant) (until locker.Instant, may bool) {
	a, ok := n.coming[token]
	return a.until, ok && !a.over(now)
}

// learn takes in what the member has told of its clock.
func (n *node) learn(r locker.Reading) { n.clocks.learn(n.index, r, n.now()) }

// claim puts a claim to the member that is expected there, as part of a hand-over
// if s is not nil, and in line if t is not.
func (n *node) claim(ctx context.Context, s *locker.Surrender, c locker.Claim, t *locker.Turn) (v locker.Verdict, g locker.Grant, err error) {
	switch {
	case s != nil:
		given := []locker.Surrender{*s}
		late := n.late(given)
		v, g, err = n.HandOver(ctx, *s, c, *t)
		n.owe(given, []locker.Verdict{v}, late)
	case t != nil:
		g, err = n.AcquireInLine(ctx, c, *t)
	default:
		g, err = n.Acquire(ctx, c)
	}
	if err != nil && !locker.CertainNo(err) {
		n.doubt(c.Token)
	}
	n.learn(v.Reading)
	n.learn(g.Reading)
	return v, g, err
}

func (n *node) renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	verdicts := n.Renew(ctx, renewals)
	n.learnAll(verdicts)
	return verdicts
}

// heal puts locks back that are expected there.
func (n *node) heal(ctx context.Context, remedies []locker.Remedy) {
	verdicts := n.Heal(ctx, remedies)
	healed := 0
	for i, r := range remedies {
		switch err := verdicts[i].Err; {
		case err == nil:
			healed++
		case !locker.CertainNo(err):
			n.doubt(r.Token)
		}
		n.arrived(r.Token)
	}
	n.learnAll(verdicts)
	if healed > 0 {
		n.log.Info("locks that a node of the quorum had lost, or never had, were put back", "node", n.name, "locks", healed)
	}
}

// release gives locks back. What is not answered is a debt from then on, and so
// is what a request on its way may bring back.
func (n *node) release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	late := n.late(surrenders)
	verdicts := n.Release(ctx, surrenders)
	n.owe(surrenders, verdicts, late)
	n.learnAll(verdicts)
	return verdicts
}

// late returns until when locks that are about to be given back may yet be put
// there by requests on their way.
func (n *node) late(surrenders []locker.Surrender) map[int]locker.Instant {
	n.mu.Lock()
	defer n.mu.Unlock()
	var late map[int]locker.Instant
	now := n.now()
	for i, s := range surrenders {
		if until, may := n.mayComeLocked(s.Token, now); may {
			if late == nil {
				late = make(map[int]locker.Instant)
			}
			late[i] = until
		}
	}
	return late
}

// learnAll takes in what the member has told of its clock with a batch: once,
// for it is told with every verdict.
func (n *node) learnAll(verdicts []locker.Verdict) {
	for _, v := range verdicts {
		if v.UnixMicro != 0 {
			n.learn(v.Reading)
			return
		}
	}
}
