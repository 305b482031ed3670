package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// mostDebts is how many locks are remembered that a member has not given
	// back. Beyond that they end there by their time to live.
	mostDebts = 4096
	debtBatch = 256

	// How long the bailiff waits after the member has not answered; it doubles
	// with each time.
	debtPauseMin = 25 * time.Millisecond
	debtPauseMax = time.Second
)

// debt is a lock that a member still has, or may come to have, though it was
// given back or never granted by a majority.
type debt struct {
	locker.Surrender
	keepUntil locker.Instant // leave a tombstone until then
	due       locker.Instant
	awaits    bool           // it is due sooner if nothing can bring it back any more
	over      locker.Instant // it has ended there by itself by then; 0 if that is not known
}

// owe takes in verdicts on locks that were given back. late has until when a
// request may be executed that brings the lock back.
func (n *node) owe(surrenders []locker.Surrender, verdicts []locker.Verdict, late map[int]locker.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for i, s := range surrenders {
		until, may := late[i]
		switch {
		case !settles(verdicts[i].Err):
			n.oweLocked(debt{Surrender: s, due: now.Add(debtPauseMin)}, now)
		case may:
			d := debt{Surrender: s}
			n.awaitLocked(&d, until, now)
			n.oweLocked(d, now)
		}
	}
}

// awaitLocked has a debt fall due once the token cannot come back any more, which
// is known by an instant at the latest. If it came while the lock was being given
// back, that is now.
func (n *node) awaitLocked(d *debt, until, now locker.Instant) {
	d.due, d.awaits = until+1, true
	if _, may := n.mayComeLocked(d.Token, now); !may {
		d.due, d.awaits = now, false
	}
}

// hastenLocked has a debt fall due for which only that was waited.
func (n *node) hastenLocked(token locker.Token, now locker.Instant) {
	d, ok := n.debts[token]
	if !ok || !d.awaits {
		return
	}
	d.due, d.awaits = min(d.due, now), false
	n.debts[token] = d
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// settles tells whether a verdict says that the member does not have the lock.
func settles(err error) bool {
	return err == nil || errors.Is(err, locker.ErrTaken) || errors.Is(err, locker.ErrGone)
}

// takeBack has a claim undone that has got no majority. Nobody is woken: those
// who wait for the key wait for who has it elsewhere.
func (n *node) takeBack(c locker.Claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	n.oweLocked(debt{
		Surrender: locker.Surrender{Key: c.Key, Token: c.Token, Holder: c.Holder, Quiet: true},
		due:       now, over: c.NotAfter.Add(c.Keep + lateSlack),
	}, now)
}

// mayHave tells whether the member may yet come to have the token.
func (n *node) mayHave(token locker.Token) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, may := n.mayComeLocked(token, n.now())
	return may
}

func (n *node) oweLocked(d debt, now locker.Instant) {
	if d.Keep > 0 && d.keepUntil == 0 { // else it was owed before
		d.keepUntil = now.Add(d.Keep)
	}
	if known, ok := n.debts[d.Token]; ok {
		known.due, known.awaits = min(known.due, d.due), known.awaits && d.awaits
		d = known
	} else if len(n.debts) >= mostDebts {
		return
	}
	n.debts[d.Token] = d
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// collect takes back what is owed until ctx is over. It blocks.
func (n *node) collect(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		batch, wait := n.dueDebts(false)
		if len(batch) > 0 {
			n.take(batch)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-timer.C:
		}
	}
}

// settleUp takes back what is owed in the end, due or not, without patience.
func (n *node) settleUp() {
	if batch, _ := n.dueDebts(true); len(batch) > 0 {
		n.take(batch)
	}
}

// dueDebts removes a batch from what is owed, or tells when there will be one.
func (n *node) dueDebts(all bool) (batch []debt, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	wait = time.Hour
	for token, d := range n.debts {
		if len(batch) == debtBatch && !all {
			break
		}
		switch due := max(d.due, n.restUntil); {
		case d.over != 0 && now > d.over:
			delete(n.debts, token)
		case all || due <= now:
			batch = append(batch, d)
			delete(n.debts, token)
		default:
			wait = min(wait, due.Sub(now))
		}
	}
	n.taking += len(batch)
	return batch, wait
}

// take sends releases for the debts. What is not settled by that is owed again.
func (n *node) take(batch []debt) {
	surrenders := make([]locker.Surrender, len(batch))
	now := n.now()
	for i, d := range batch {
		d.Keep = max(0, d.keepUntil.Sub(now))
		surrenders[i] = d.Surrender
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*n.timeout)
	defer cancel()
	late := n.late(surrenders)
	verdicts := n.Release(ctx, surrenders)
	n.learnAll(verdicts)

	n.mu.Lock()
	defer n.mu.Unlock()
	n.taking -= len(batch)
	now = n.now()
	for i, d := range batch {
		until, may := late[i]
		switch {
		case !settles(verdicts[i].Err):
			d.due, d.awaits = now.Add(debtPauseMin), false
		case may:
			n.awaitLocked(&d, until, now)
		default:
			continue
		}
		n.oweLocked(d, now)
	}
	if settles(verdicts[0].Err) {
		n.failures = 0
		return
	}
	n.restUntil = n.now().Add(min(debtPauseMin<<min(n.failures, 10), debtPauseMax))
	n.failures++
}
