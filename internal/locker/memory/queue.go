package memory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// How the line works, here and in every backend:
//
//   - A place is dead once it is DeadAfter past its promise to ask, past the
//     end of its wait, or has said nothing for DeadAfter since it was woken.
//     Whoever looks at the line drops all dead places at its front, at once.
//   - Waking tells the first place that the key is free. If nobody listens for
//     its process it is dead too, and the next is woken in the same step. What
//     has been woken is not woken again by those who ask.
//   - The number of a place is what the process's latest call says: the least
//     of its callers' numbers. So an ask that is executed after its caller has
//     left cannot put the place in front for good. A call without a number
//     knows nothing of the others, and leaves an earlier place where it is.
//   - The numbers of the dead are not given again while anybody can remember
//     them.

// AcquireInLine implements [locker.Queue].
func (b *Backend) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Grant{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attemptLocked(c)
	g, err := b.inLineLocked(a, t, true)
	g.Reading = a.reading()
	return g, err
}

// Leave implements [locker.Queue].
func (b *Backend) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	if err := over(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	l := b.lines.get(key, now)
	i := l.index(t.Process)
	if i < 0 || t.Number != 0 && l.places[i].number != t.Number || l.places[i].call > t.Call {
		return nil // another caller has the place
	}
	p := l.take(t.Process)
	if t.Rest != 0 {
		p.number, p.call, p.woken = t.Rest, t.Call, 0
		l.put(p)
	}
	l.dropDead(now)
	if !b.rows.get(key, now).taken() {
		b.wakeOnceLocked(key, l, now)
	}
	b.tellNearLocked(key, l)
	return nil
}

// HandOver implements [locker.Queue]. Sent again after it has been carried
// out, it says so again.
func (b *Backend) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	if err := over(ctx); err != nil {
		return locker.Verdict{Err: err}, locker.Grant{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attemptLocked(c)
	verdict := locker.Verdict{Reading: a.reading()}
	if !a.row.heldBy(c.Token) {
		verdict.Err = b.releaseLocked(s, a.now)
		a.row = b.rows.get(c.Key, a.now)
	}
	g, err := b.inLineLocked(a, t, verdict.Err == nil)
	g.Reading = verdict.Reading
	var held *locker.HeldError
	if err != nil && !errors.As(err, &held) && verdict.Err == nil && !a.row.taken() {
		b.freedLocked(c.Key, a.now)
	}
	return verdict, g, err
}

// inLineLocked answers a claim that waits. If it may not be granted it is
// refused though the key is free and nobody is before it.
func (b *Backend) inLineLocked(a attempt, t locker.Turn, may bool) (locker.Grant, error) {
	if g, done, err := a.settled(); done {
		return g, err
	}
	l := b.lines.get(a.Key, a.now)
	was := l.take(t.Process)
	l.dropDead(a.now)
	number, own := l.number(t), was
	own.asked(t, number, a.now)

	free := !a.row.taken()
	if free && l.before(own) && !a.Overtake {
		b.wakeOnceLocked(a.Key, l, a.now)
	}
	if free && may && (own.number == number && !l.before(own) || a.Overtake) {
		g, err := b.grantLocked(a, l)
		switch {
		case err != nil && was.number != 0:
			l.put(was)
		case err == nil && t.Rest != 0:
			own.number = t.Rest
			i := l.put(own)
			l.promise(i, a.now, locker.AskIn(i, a.Keep))
			b.lines.keep(a.Key, l, a.now)
		}
		b.tellNearLocked(a.Key, l)
		return g, err
	}

	i := l.put(own)
	askIn := l.askIn(i, a)
	l.promise(i, a.now, askIn)
	b.lines.keep(a.Key, l, a.now)
	b.tellNearLocked(a.Key, l)
	held := a.refusal(l)
	held.Standing = &locker.Standing{Number: number, Ahead: i, AskIn: askIn}
	return locker.Grant{}, held
}

// askIn is when the place at i should ask again. While the key is free that is
// when the head, which was woken, counts as dead.
func (l *line) askIn(i int, a attempt) time.Duration {
	switch {
	case a.row.taken():
		return locker.AskIn(i, a.row.until.Sub(a.now))
	case i == 0:
		return locker.AskIn(0, 0)
	}
	return l.places[0].woken.Add(locker.DeadAfter).Sub(a.now) + time.Millisecond
}

// freedLocked wakes the first in line for a key that was just given back.
func (b *Backend) freedLocked(key locker.Key, now locker.Instant) {
	l := b.lines.get(key, now)
	l.dropDead(now)
	b.wakeLocked(key, l, now)
	b.tellNearLocked(key, l)
}

// wakeOnceLocked wakes the first in line unless it was, and may yet ask.
func (b *Backend) wakeOnceLocked(key locker.Key, l *line, now locker.Instant) {
	if len(l.places) > 0 && l.places[0].woken == 0 {
		b.wakeLocked(key, l, now)
	}
}

// wakeLocked wakes the first in line, and drops the dead and those for whom
// nobody listens before it. After silent heads it wakes more than one.
func (b *Backend) wakeLocked(key locker.Key, l *line, now locker.Instant) {
	width := 1 << min(l.silent, maxWidth)
	for i := 0; i < min(width, len(l.places)); {
		p := &l.places[i]
		if p.dead(now) || !b.tellLocked(p.process, locker.Hint{Kind: locker.HintWake, Key: key}) {
			l.places = slices.Delete(l.places, i, i+1)
			continue
		}
		p.near = true
		if p.woken == 0 { // else it has been silent since
			p.woken = now
		}
		i++
	}
}

// tellNearLocked tells the first two in line that they are, unless they know.
func (b *Backend) tellNearLocked(key locker.Key, l *line) {
	for i := range min(2, len(l.places)) {
		p := &l.places[i]
		p.near = p.near || b.tellLocked(p.process, locker.Hint{Kind: locker.HintNear, Key: key})
	}
}
