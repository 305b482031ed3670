package locker

import (
	"log/slog"
	"time"
)

// Parting is how a connection ended to which a grant was bound.
type Parting int

const (
	// LeftUntold: before the grant was told over it.
	LeftUntold Parting = iota
	// Left: the caller has ended it, or knows that it has ended.
	Left
	// LeftDeaf: it was given up since the caller takes nothing in. That one may
	// be at work, and rely on what it was told last.
	LeftDeaf
)

// Unbind says that a connection to which a grant was bound has ended. It takes
// the place of GiveBack and Cleared after the success of a Request that is
// Bound. The last of a grant's connections gives it back, whoever else was told
// of it; but while one that is LeftDeaf may rely on what it was told, the grant is
// not renewed any more, and ends when its validity does. It blocks for at most the store timeout; what is not
// confirmed by then is repeated.
func (l *Locker) Unbind(id GrantID, how Parting) {
	c, result := l.unbind(id, how)
	if c == nil {
		return
	}
	if !l.handOver(c) {
		l.attempt(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countReleaseLocked(c, result)
}

// unbind takes the grant out of the table if that was its last connection.
func (l *Locker) unbind(id GrantID, how Parting) (*chore, ReleaseResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	g := l.byID[id]
	if g == nil || !l.aliveLocked(g, now) || g.audience == nil || g.audience.bound == 0 {
		return nil, ""
	}
	g.audience.bound--
	g.audience.told = g.audience.told || how != LeftUntold
	if how == LeftDeaf {
		g.audience.deafUntil = g.validUntil
	}
	if g.audience.bound > 0 {
		return nil, ""
	}
	if now < g.audience.deafUntil {
		g.renew = false
		l.noteLocked(g, g.phase)
		l.poke()
		l.lineLocked(slog.LevelWarn, "a caller does not take in what its bound connection tells: its lock is not renewed any more",
			"key", g.key, "fence", g.fence, "owner", g.owner, "valid_for", g.validUntil.Sub(now).Round(time.Millisecond))
		return nil, ""
	}
	known := g.audience.told || g.published || g.answers > 0
	c, _ := l.giveLocked(g, !known, false, now)
	if !known {
		l.lineLocked(slog.LevelInfo, "grant given back: the caller had gone before it was told", "key", c.key, "fence", c.fence)
		return c, ReleaseGivenBack
	}
	l.lineLocked(slog.LevelDebug, "lock released: the connection that it was bound to has ended", "key", c.key, "fence", c.fence, "owner", c.owner)
	return c, ReleaseUnbound
}

// lead is how long before its validity ends a grant is given up that somebody
// follows or that ends with a connection: the time that it takes to tell them.
// It is none for others, who find out by asking.
func (g *grant) lead() time.Duration {
	if !g.bound && g.audience == nil {
		return 0
	}
	return leadOf(g.lease)
}

// The bounds of lead. The least is what a busy machine may take to run us; the
// most, what one may take that has given us no processor for a while.
const (
	leadFraction = 50 // of the lease
	leadMin      = 30 * time.Millisecond
	leadMax      = 250 * time.Millisecond // less than one who asks for the lock then waits
)

func leadOf(lease time.Duration) time.Duration {
	return min(max(lease/leadFraction, leadMin), leadMax, lease/4)
}

// toldLocked takes in that the grant is about to be told over a connection.
func (g *grant) toldLocked(bound bool) {
	if !bound {
		g.answers++
		g.tethers++
		return
	}
	if g.audience == nil {
		g.audience = new(audience)
	}
	g.audience.bound++
	g.renew = true // also if the last connection was left deaf
}
