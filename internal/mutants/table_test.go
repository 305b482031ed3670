//go:build mutants

package mutants

// mutant is a mistake that somebody could make in one line. The tests of its
// packages must fail with it.
type mutant struct {
	name     string
	file     string // within the module
	old, new string // old is in the file exactly once
	packages []string
}

// The packages whose tests have to catch the mutants of the lease, and of the
// store.
var (
	lease = []string{"./internal/locker", "./internal/renewer"}
	store = []string{"./internal/locker/memory"}
)

var mutants = []mutant{
	{"deadline of a grant counted from the reply", "internal/locker/acquire.go",
		"g.extended(g.asked, ttl, capped)", "g.extended(now, ttl, capped)", lease},
	{"deadline of a renewal counted from the reply", "internal/locker/watchdog.go",
		"g.extended(sent, item.ttl, item.capped)", "g.extended(now, item.ttl, item.capped)", lease},
	{"margin added instead of subtracted", "internal/locker/grant.go",
		"g.validUntil = sent.Add(ttl - DriftMargin(ttl))", "g.validUntil = sent.Add(ttl + DriftMargin(ttl))", lease},
	{"validity a flag instead of a deadline", "internal/locker/grant.go",
		"return now < g.validUntil", "return true", lease},
	{"validity not looked at after the answer to a request", "internal/locker/acquire.go",
		"case !g.valid(now):", "case false:", lease},
	{"validity not looked at after the answer to a renewal", "internal/locker/watchdog.go",
		"if l.byID[g.id] != g || !l.aliveLocked(g, now) {", "if l.byID[g.id] != g {", lease},
	{"renewal sent after valid_until", "internal/locker/watchdog.go",
		"g != nil && l.aliveLocked(g, now) && g.extending == nil", "g != nil && g.extending == nil", lease},
	{"renewal executed after valid_until", "internal/locker/watchdog.go",
		"notAfter := min(now.Add(l.cfg.StoreTimeout), g.validUntil)", "notAfter := now.Add(l.cfg.StoreTimeout)", lease},
	{"renewal while another is on its way", "internal/locker/watchdog.go",
		"l.aliveLocked(g, now) && g.extending == nil", "l.aliveLocked(g, now)", lease},
	{"renewal of a lock that is only to be verified", "internal/locker/watchdog.go",
		"if g.req.Renew && !g.capped {", "if !g.capped {", lease},
	{"renewal beyond the maximum hold", "internal/locker/grant.go",
		"ttl, capped = end.Sub(now), true", "capped = true", lease},
	{"renewal cuts the minimum hold", "internal/locker/grant.go",
		"return ttl, max(ttl, g.minHoldLeft(now)), capped", "return ttl, ttl, capped", lease},
	{"renewal late", "internal/renewer/timing.go",
		"dueFraction = 3", "dueFraction = 2", lease},
	{"jitter that lengthens", "internal/renewer/timing.go",
		"now.Add(pause - rand.N(pause/2))", "now.Add(pause + rand.N(pause/2))", lease},
	{"end of validity not told by the watchdog", "internal/renewer/schedule.go",
		"case e.validUntil <= now:", "case false:", lease},
	{"hanging batch holds up the loop", "internal/renewer/watchdog.go",
		"batches.Go(func() { table.Renew(ctx, due) })", "table.Renew(ctx, due)", lease},
	{"suspension not noticed", "internal/renewer/watchdog.go",
		"min(head.Sub(now), maxSleep)", "head.Sub(now)", lease},
	{"unknown read as no", "internal/locker/errors.go",
		"return errors.As(err, &store) && store.Certain", "return errors.As(err, &store)", lease},
	{"unanswered request forgotten once another was answered", "internal/locker/ask.go",
		"g.unanswered(g.sentUntil)", "_ = g", lease},
	{"unanswered shorter lease forgotten", "internal/locker/grant.go",
		"if sent < g.doubtUntil && g.doubtTTL < ttl {", "if false {", lease},
	{"lease cut short renewed as if it were not", "internal/locker/grant.go",
		"TTL: g.lease, ValidUntil", "TTL: g.ttl, ValidUntil", lease},
	{"clean-up only once", "internal/locker/chores.go",
		"if sent > c.lateUntil {", "if true {", lease},
	{"clean-up of a lost lock left out", "internal/locker/locker.go",
		"l.scheduleLocked(l.addChoreLocked(g, false), now)", "_ = g", lease},
	{"clean-up given up at the first failure", "internal/locker/chores.go",
		"if now >= c.giveUp {", "if true {", lease},
	{"clean-up without end", "internal/locker/chores.go",
		"if now >= c.giveUp {", "if false {", lease},
	{"release on the caller's context", "internal/locker/release.go",
		"l.attempt(c)", "if ctx.Err() == nil { l.attempt(c) }", lease},
	{"extension on the caller's context", "internal/locker/extend.go",
		"context.WithTimeout(context.WithoutCancel(ctx), deadline.Sub(batch.sent))", "context.WithTimeout(ctx, deadline.Sub(batch.sent))", lease},
	{"grant kept for a caller that has gone", "internal/locker/acquire.go",
		"case ctx.Err() != nil:", "case false:", lease},
	{"grant given back though another answer told of it", "internal/locker/release.go",
		"if g.answers > 0 || g.published {", "if false {", lease},
	{"release of another worker's lock", "internal/locker/grant.go",
		"return (h.Fence == 0 || h.Fence == g.fence) && (h.Owner == \"\" || h.Owner == g.req.Owner)", "return true", lease},
	{"release without a handle of a lock that has an owner", "internal/locker/release.go",
		"if !o.Force && g.req.Owner != \"\" && h == (Handle{}) {", "if false {", lease},
	{"release on SIGTERM before the guard has ended", "internal/locker/shutdown.go",
		"for waiting := true; ; {", "for waiting := false; ; {", lease},
	{"release on SIGTERM of what may still be worked under", "internal/locker/shutdown.go",
		"case mode != ModeRelease && g.tethers <= 0, mode == ModeDrop && last:", "case true:", lease},
	{"answer overtaken by that of a later grant", "internal/locker/acquire.go",
		"case old != nil && old.fence > g.fence:", "case false:", lease},
	{"fence without the time floor", "internal/locker/fence.go",
		"if f.micros > 0 {", "if false {", lease},
	{"fence without any floor", "internal/locker/ask.go",
		"Floor: l.floor.now(now), ", "", lease},
	{"fence implausible and believed", "internal/locker/acquire.go",
		"case !l.floor.plausible(answer.Fence, now):", "case false:", lease},
	{"PEXPIRE without compare", "internal/locker/memory/memory.go",
		"r, err := b.rows.held(renewal.Key, renewal.Token, now)", "r, err := b.rows.get(renewal.Key, now), error(nil)", store},
	{"DEL without compare", "internal/locker/memory/memory.go",
		"r, err := b.rows.held(s.Key, s.Token, now)", "r, err := b.rows.get(s.Key, now), error(nil)", store},
	{"late request executed", "internal/locker/memory/memory.go",
		"if now > renewal.NotAfter {", "if false {", store},
}
