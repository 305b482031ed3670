package locker

import (
	"context"
	"time"
)

// Beat tells the watchdog of a held grant.
type Beat struct {
	ID         GrantID
	Confirmed  Instant // when the last confirmed request was sent
	TTL        time.Duration
	ValidUntil Instant // when it is given up
	Failures   int     // renewals that failed since Confirmed
}

// Watchdog decides when a held grant is renewed. The Locker tells it of every
// change; both methods are called under the table's mutex and must not call
// back.
type Watchdog interface {
	// Watch schedules the grant's next renewal, instead of any earlier one.
	Watch(Beat)
	// Forget ends that; a grant that is not watched is no error.
	Forget(GrantID)
}

// Renew sends one renewal, or verification, for each of the grants that still
// needs one, and tells the watchdog how to go on. It blocks for at most the
// store timeout.
func (l *Locker) Renew(ctx context.Context, ids []GrantID) {
	l.mu.Lock()
	now := l.now()
	var due []*grant
	for _, id := range ids {
		if g := l.byID[id]; g != nil && l.aliveLocked(g, now) && g.extending == nil {
			g.extending = &extending{over: make(chan struct{})}
			due = append(due, g)
		}
	}
	batch := l.prepareLocked(due, now)
	l.mu.Unlock()
	l.extend(ctx, batch)
}

// Expire ends the grants whose validity is over.
func (l *Locker) Expire(ids []GrantID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, id := range ids {
		if g := l.byID[id]; g != nil && l.aliveLocked(g, now) {
			l.dog.Watch(g.beat())
		}
	}
}

// extension is one renewal on its way.
type extension struct {
	grant  *grant
	ask    Renewal
	ttl    time.Duration
	capped bool
	undo   func() // takes back what was assumed, if nothing was done; or nil
}

type extensions struct {
	sent     Instant
	items    []extension
	shortens bool // a lease may end earlier than the journal knows
}

// prepareLocked writes down what is about to be sent for the grants, each of
// which has been marked as extending.
func (l *Locker) prepareLocked(grants []*grant, now Instant) extensions {
	batch := extensions{sent: now, items: make([]extension, len(grants))}
	for i, g := range grants {
		// Executed after the lease's end, it would revive a lost lock.
		notAfter := min(now.Add(l.cfg.StoreTimeout), g.validUntil)
		g.inFlightUntil = notAfter
		item := extension{grant: g, ask: Renewal{Key: g.key, Token: g.token, NotAfter: notAfter, Fence: g.fence, Note: g.note}}
		if g.renew && !g.capped && !g.unproven {
			item.ttl, item.ask.Keep, item.capped = g.renewalFrom(now)
			g.sending(notAfter, item.ask.Keep)
		}
		batch.items[i] = item
	}
	return batch
}

// extend sends prepared extensions and takes in the verdicts, which it also
// returns.
func (l *Locker) extend(ctx context.Context, batch extensions) []Verdict {
	if len(batch.items) == 0 {
		return nil
	}
	asks := make([]Renewal, len(batch.items))
	for i, item := range batch.items {
		asks[i] = item.ask
	}
	var verdicts []Verdict
	if batch.shortens && l.writeNotes() != nil {
		verdicts = []Verdict{{Err: ErrNotRecorded}} // only ever for one
	} else {
		ctx, cancel := context.WithTimeout(ctx, l.cfg.StoreTimeout)
		verdicts = l.backend.Renew(ctx, asks)
		cancel()
	}

	l.writeExtended(batch, verdicts)
	l.mu.Lock()
	now := l.now()
	for i, item := range batch.items {
		l.concludeLocked(item, batch.sent, verdicts[i], now)
	}
	l.mu.Unlock()
	_ = l.writeNotes() // of what was not extended after all
	return verdicts
}

func (l *Locker) countExtensionLocked(item extension, result RenewResult, slack time.Duration) {
	if item.ask.Keep > 0 {
		l.observe.Renewed(result, slack)
	} else {
		l.observe.Verified(result)
	}
}

// concludeLocked takes in the verdict on one extension.
func (l *Locker) concludeLocked(item extension, sent Instant, v Verdict, now Instant) {
	g := item.grant
	close(g.extending.over)
	g.extending, g.inFlightUntil = nil, 0
	l.newsLocked()
	l.learnLocked(v.Reading, now)
	if v.Err != nil && !CertainNo(v.Err) {
		g.unanswered(item.ask.NotAfter)
	}
	if item.ask.Keep > 0 && !CertainNo(v.Err) {
		defer g.mayRepeat(item.ask.NotAfter, item.ttl)
	}
	if v.Err != nil && CertainNo(v.Err) && item.undo != nil {
		item.undo()
	}
	if l.byID[g.id] != g || !l.aliveLocked(g, now) {
		return // released or lost meanwhile; the chore made then covers this request
	}
	slack := g.validUntil.Sub(now)
	switch {
	case v.Err == nil:
		if item.ask.Keep > 0 {
			g.extended(sent, item.ttl, item.capped)
			g.renewals++
		} else {
			g.verified(sent)
		}
		if sent < l.doubtedAt { // it says nothing of who decides now
			g.failures++
		}
		if l.aliveLocked(g, now) {
			l.countExtensionLocked(item, RenewOK, slack)
			l.dog.Watch(g.beat())
			g.changedLocked()
		}
	case isLoss(v.Err):
		l.countExtensionLocked(item, RenewLost, slack)
		l.loseLocked(g, causeOf(v.Err), now)
	default:
		g.failures++
		if item.undo != nil {
			l.noteLocked(g, g.phase)
		}
		l.countExtensionLocked(item, RenewFailed, slack)
		l.dog.Watch(g.beat())
		g.changedLocked()
	}
}
