package locker

import (
	"context"
	"errors"
	"time"
)

// Extend changes a held grant and extends its lease from now on, within its
// maximum hold; it never acquires. It blocks for at most the store timeout. The
// errors: as for Get, a *StoreError that is Certain and ErrNotRecorded (nothing
// was changed), ErrExtendUnconfirmed, and ErrCallerGone while an earlier extension is on its
// way.
func (l *Locker) Extend(ctx context.Context, key Key, h Handle, c Changes) (Status, error) {
	deadline := l.now().Add(l.cfg.StoreTimeout)
	for {
		batch, busy, err := l.startExtend(key, h, c, deadline)
		if err != nil {
			return Status{}, err
		}
		if busy == nil {
			return l.finishExtend(ctx, batch, c, deadline)
		}
		timer := time.NewTimer(max(0, deadline.Sub(l.now())))
		select {
		case <-busy:
		case <-timer.C:
			err = &StoreError{Reason: StoreTimeout, Certain: true, Err: errors.New("an earlier renewal has not been answered")}
		case <-ctx.Done():
			err = ErrCallerGone
		}
		timer.Stop()
		if err != nil {
			return Status{}, err
		}
	}
}

// startExtend applies the changes to the grant and marks it as extending. busy
// is the mark of another extension that is on its way.
func (l *Locker) startExtend(key Key, h Handle, c Changes, deadline Instant) (batch extensions, busy chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	g, err := l.findLocked(key, h, now)
	if err != nil {
		return extensions{}, nil, err
	}
	if g.extending != nil {
		return extensions{}, g.extending.over, nil
	}
	l.provenLocked(g)
	before := *g
	if c.TTL != nil {
		g.ttl = *c.TTL
	}
	if c.MaxHold != nil {
		g.maxHold, g.capped = *c.MaxHold, false
	}
	if c.Note != nil {
		g.note = *c.Note
	}
	g.extending = &extending{over: make(chan struct{})}
	l.newsLocked()
	item := extension{grant: g, ask: Renewal{Key: g.key, Token: g.token, NotAfter: min(deadline, g.validUntil), Fence: g.fence, Note: g.note}}
	item.ttl, item.ask.Keep, item.capped = g.leaseFrom(now)
	item.undo = func() {
		g.ttl, g.maxHold, g.note = before.ttl, before.maxHold, before.note
		g.validUntil, g.lease, g.capped = before.validUntil, before.lease, before.capped
	}
	g.inFlightUntil = item.ask.NotAfter
	g.sending(item.ask.NotAfter, item.ask.Keep)
	// The store may execute a shorter lease without our hearing of it.
	if until := now.Add(item.ttl - DriftMargin(item.ttl)); until < g.validUntil {
		g.validUntil, g.lease, g.capped = until, item.ttl, item.capped
		g.changedLocked()
	}
	shortens := item.ttl < before.lease
	if shortens {
		l.noteLocked(g, g.phase)
	}
	return extensions{sent: now, items: []extension{item}, shortens: shortens}, nil, nil
}

func (l *Locker) finishExtend(ctx context.Context, batch extensions, c Changes, deadline Instant) (Status, error) {
	g := batch.items[0].grant
	// What was sent is seen through to its answer, though the caller leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline.Sub(batch.sent))
	defer cancel()
	verdict := l.extend(ctx, batch)[0]
	if verdict.Err == nil && c.Note != nil {
		l.annotate(ctx, g.key, g.token, *c.Note)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if !l.aliveLocked(g, now) {
		if e := l.endings.find(g.key, Handle{Fence: g.fence}, now); e != nil && e.lost != nil {
			return Status{}, e.lost
		}
		return Status{}, ErrNotHeld
	}
	switch {
	case verdict.Err == nil:
		g.published = true
		return g.status(now), nil
	case CertainNo(verdict.Err):
		return Status{}, certainly(verdict.Err)
	}
	return Status{}, ErrExtendUnconfirmed
}

// annotate shows a note to people elsewhere, where the backend can; that it
// cannot is no failure of the lock.
func (l *Locker) annotate(ctx context.Context, key Key, token Token, note string) {
	a, ok := l.backend.(Annotator)
	if !ok {
		return
	}
	if err := a.Annotate(ctx, key, token, note); err != nil {
		l.log.Debug("note not shown in the store", "key", key, "err", err)
	}
}
