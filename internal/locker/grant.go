package locker

import (
	"math"
	"slices"
	"time"
)

// grant is one generation of a lock: from before its request is sent until it
// is released, lost or refused. All fields are guarded by the Locker's mutex.
// There may be ten thousand, so it is laid out to fit into 256 bytes.
type grant struct {
	id    GrantID
	key   Key
	owner string
	token Token

	entered Instant // when the caller came
	// asked is when the request was sent that validity and holds count from:
	// the earliest without an answer, as it may be the one that was granted.
	asked     Instant
	sent      Instant // when the last request for it was sent …
	sentUntil Instant // … and its NotAfter
	waiter    *waiter // in line; nil if it does not wait

	fence      Fence
	acquiredAt int64 // wall clock in ns, for people
	note       string
	ttl        time.Duration
	maxHold    time.Duration
	minHold    time.Duration
	validUntil Instant
	lease      time.Duration // that validUntil was reckoned from: ttl, or what cuts it short
	confirmed  Instant       // when the last request that the store confirmed was sent
	failures   int32         // renewals or verifications failed since then
	renewals   int32

	// extending is set while a request that changes the lease is on its way: two
	// of them could be executed in another order than their answers come.
	extending     *extending
	inFlightUntil Instant // NotAfter of that request

	// An extension may be executed, or executed once more, until its NotAfter.
	// If it set a shorter lease than a later one, it cuts that one.
	doubtUntil Instant
	doubtTTL   time.Duration

	lateUntil  Instant // until then an unanswered request may be executed
	storeUntil Instant // the store keeps the key no longer than this

	audience *audience // who lives by it or follows it; nil for nobody

	answers int32 // answers that reported the grant and may still fail to arrive
	tethers int32 // connections over which it was granted and that are still open

	published bool // an answer that is not tracked reported it
	unproven  bool // from an earlier process, and nobody may know of it: not extended
	inDoubt   bool // a request was not answered, and may have been or yet be executed
	renew     bool // extended by the watchdog, else only verified
	capped    bool // validUntil is set by the maximum hold
	bound     bool // ends with the connections over which it was told
	phase     Phase
	acked     uint8 // replicas that had it when it was granted, as far as a byte can tell
}

// extending is a request on its way that changes a lease.
type extending struct {
	over chan struct{} // closed once its answer was taken in

	// Of the lease that the store has confirmed, while that is written down; 0
	// before. Any record that is made meanwhile must tell of it too.
	until  Instant
	lease  time.Duration
	capped bool
}

// granted takes in a yes.
func (g *grant) granted(answer Grant, now Instant) {
	ttl, capped := g.leaseOf(answer)
	g.fence, g.acquiredAt = answer.Fence, time.Now().Add(-now.Sub(g.asked)).UnixNano()
	g.extended(g.asked, ttl, capped)
	g.acked = uint8(min(answer.Acked, math.MaxUint8))
}

// valid tells whether the lease can be relied on.
func (g *grant) valid(now Instant) bool { return now < g.endsAt() }

// endsAt is when the grant is lost if nothing extends it before.
func (g *grant) endsAt() Instant { return g.validUntil.Add(-g.lead()) }

// holdEnd is the instant that no lease may outlive; ok is false for none.
func (g *grant) holdEnd() (end Instant, ok bool) {
	if g.maxHold == 0 {
		return 0, false
	}
	return g.asked.Add(g.maxHold), true
}

// leaseFrom returns the lease that may be asked for at an instant: its TTL,
// shortened so that it does not outlive the maximum hold, and how long the
// store must keep the key.
func (g *grant) leaseFrom(now Instant) (ttl, keep time.Duration, capped bool) {
	return g.lasting(g.ttl, now)
}

// renewalFrom is leaseFrom for an extension that nobody has asked for. It does
// not end the lease before the end that was told, as of one from an earlier
// process for which longer TTLs were allowed.
func (g *grant) renewalFrom(now Instant) (ttl, keep time.Duration, capped bool) {
	kept := g.validUntil.Add(DriftMargin(g.lease)) // by the store
	return g.lasting(max(g.ttl, kept.Sub(now)), now)
}

func (g *grant) lasting(ttl time.Duration, now Instant) (_, keep time.Duration, capped bool) {
	if end, ok := g.holdEnd(); ok && now.Add(ttl) > end {
		ttl, capped = end.Sub(now), true
	}
	ttl = max(ttl, time.Millisecond)
	return ttl, max(ttl, g.minHoldLeft(now)), capped
}

// minHoldLeft is how much longer the key must stay taken.
func (g *grant) minHoldLeft(now Instant) time.Duration {
	return max(0, g.asked.Add(g.minHold).Sub(now))
}

// leaseOf returns the lease, counted from asked, that the answer to the last
// request gives. If the network delivers a request again, even one that was
// refused may have been granted since: the answer tells what is left then.
func (g *grant) leaseOf(answer Grant) (ttl time.Duration, capped bool) {
	ttl, _, capped = g.leaseFrom(g.asked)
	if left := g.sent.Sub(g.asked) + answer.Left; left < ttl {
		return left, false
	}
	return ttl, capped
}

// usedUp tells whether the lease that the answer gives is over by now.
func (g *grant) usedUp(answer Grant, now Instant) bool {
	ttl, _ := g.leaseOf(answer)
	return now >= g.asked.Add(ttl-DriftMargin(ttl))
}

// extended takes in a confirmed extension that was sent at an instant.
func (g *grant) extended(sent Instant, ttl time.Duration, capped bool) {
	if sent < g.doubtUntil && g.doubtTTL < ttl {
		ttl, capped = g.doubtTTL, false
	} else if sent >= g.doubtUntil {
		g.doubtTTL = 0
	}
	g.validUntil = sent.Add(ttl - DriftMargin(ttl))
	g.lease, g.capped = ttl, capped
	g.verified(sent)
}

// verified takes in that the store confirmed the lock without extending it.
func (g *grant) verified(sent Instant) {
	g.confirmed, g.failures = sent, 0
}

// mayRepeat takes in that an extension may be executed until its NotAfter:
// because it was not answered, or once more because the network delivers it
// twice.
func (g *grant) mayRepeat(notAfter Instant, ttl time.Duration) {
	if g.doubtTTL == 0 || ttl < g.doubtTTL {
		g.doubtTTL = ttl
	}
	g.doubtUntil = max(g.doubtUntil, notAfter)
}

// sending takes in that a request is about to be sent which makes the store
// keep the key for that long, if it is executed at NotAfter at the latest.
func (g *grant) sending(notAfter Instant, keep time.Duration) {
	g.storeUntil = max(g.storeUntil, notAfter.Add(keep))
}

// unanswered takes in that a request may yet be executed.
func (g *grant) unanswered(notAfter Instant) { g.lateUntil = max(g.lateUntil, notAfter) }

// acquired returns when it was granted, on the wall clock.
func (g *grant) acquired() time.Time { return time.Unix(0, g.acquiredAt) }

func (g *grant) state(now Instant) HeldState {
	if g.failures > 0 || now.Sub(g.confirmed) > g.lease/2 {
		return StateAtRisk
	}
	return StateHeld
}

// changesAt is when a grant in that state comes into another if nothing happens
// before.
func (g *grant) changesAt(state HeldState) Instant {
	end := g.endsAt()
	if state == StateHeld {
		return min(end, g.confirmed.Add(g.lease/2)+1)
	}
	return end
}

func (g *grant) status(now Instant) Status {
	return Status{
		ID: g.id, Key: g.key, Owner: g.owner, Note: g.note, Fence: g.fence,
		State: g.state(now), AcquiredAt: g.acquired(), TTL: g.ttl,
		ValidFor: g.validUntil.Sub(now), ValidUntil: g.validUntil, HeldFor: now.Sub(g.asked),
		Renewals: int(g.renewals), Renew: g.renew, Bound: g.bound, MaxHold: g.maxHold, MinHold: g.minHold,
		AckedReplicas: int(g.acked),
	}
}

// matches tells whether the handle names this grant.
func (g *grant) matches(h Handle) bool {
	return (h.Fence == 0 || h.Fence == g.fence) && (h.Owner == "" || h.Owner == g.owner)
}

// mismatch returns the first parameter given in r that differs from the
// grant's, or "".
func (g *grant) mismatch(r Request) Parameter {
	given := func(p Parameter) bool { return slices.Contains(r.Given, p) }
	switch {
	case given(ParamTTL) && r.TTL != g.ttl:
		return ParamTTL
	case (given(ParamBind) || r.Bound) && r.Bound != g.bound:
		return ParamBind
	case given(ParamRenew) && r.Renew != (g.renew || g.bound): // of a bound one it is only suspended
		return ParamRenew
	case given(ParamMaxHold) && r.MaxHold != g.maxHold:
		return ParamMaxHold
	case given(ParamMinHold) && r.MinHold != g.minHold:
		return ParamMinHold
	case given(ParamNote) && r.Note != g.note:
		return ParamNote
	}
	return ""
}

// beat is what the watchdog needs to know.
func (g *grant) beat() Beat {
	return Beat{ID: g.id, Confirmed: g.confirmed, TTL: g.lease, ValidUntil: g.endsAt(), Failures: int(g.failures)}
}
