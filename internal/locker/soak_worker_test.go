package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// worker is one client of a sidecar. It takes locks, tends them and gives them
// back, with a random mind, and records what it is told.
type worker struct {
	*slot
	at     *soaked // this turn's
	name   string
	random *rand.Rand
	asked  int
}

func (w *worker) live(end locker.Instant) {
	for w.world.now() < end {
		w.pause(30 * time.Second)
		if w.at = w.slot.now(); w.at != nil {
			w.turn()
		}
	}
}

func (w *worker) pause(most time.Duration) { time.Sleep(w.upTo(most)) }

func (w *worker) upTo(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

func (w *worker) chance(share float64) bool { return w.random.Float64() < share }

// timed fails the test if a request is answered too late. A caller that waits
// stays until a given instant; for others that is over already.
func (w *worker) timed(what string, stays locker.Instant, request func()) {
	began := w.world.now()
	request()
	if late := w.world.now().Sub(w.at.mustAnswer(began, stays)); late > 0 {
		w.t.Errorf("%s: %s took %v, which is %v too long", w.name, what, w.world.now().Sub(began), late)
	}
}

func (w *worker) request() locker.Request {
	w.asked++
	r := locker.Request{
		Key: soakKeys[w.random.IntN(len(soakKeys))], TTL: w.ttl(), Renew: w.chance(0.8),
		Note: fmt.Sprintf("request %d of %s", w.asked, w.name),
	}
	if w.chance(0.7) {
		r.Owner = w.name
	}
	if w.chance(0.5) {
		r.Wait = 200*time.Millisecond + w.upTo(soakMaxWait-200*time.Millisecond)
	}
	if w.chance(0.15) {
		r.MaxHold = time.Duration(w.random.Int64N(int64(15 * time.Second)))
	}
	if w.chance(0.15) {
		r.MinHold = time.Duration(w.random.Int64N(int64(6 * time.Second)))
	}
	return r
}

func (w *worker) ttl() time.Duration {
	return []time.Duration{time.Second, 1500 * time.Millisecond, 5 * time.Second, soakMaxTTL}[w.random.IntN(4)]
}

// turn takes one lock, if it can.
func (w *worker) turn() {
	r := w.request()
	ctx, leave := context.WithCancel(w.at.alive)
	stays := w.world.now().Add(r.Wait)
	if w.chance(0.15) {
		stay := w.upTo(max(200*time.Millisecond, r.Wait))
		stays = min(stays, w.world.now().Add(stay))
		ctx, leave = context.WithTimeout(ctx, stay)
	}
	defer leave()
	st, answers := w.post(ctx, stays, r)
	if answers == 0 || w.at.isDead() {
		return
	}
	if answers == 1 && w.chance(0.1) {
		w.at.GiveBack(st.ID) // the answer did not arrive, so nobody counts on it
		w.tally.add("POST undelivered")
		return
	}
	h := &hold{worker: w, id: st.ID, key: r.Key, fence: st.Fence, from: w.world.now()}
	h.told(st)
	if w.chance(0.7) {
		h.clear()
	}
	h.tend(r)
	h.finish(r)
}

// clear closes the connection over which the grant was told.
func (h *hold) clear() {
	if !h.cleared {
		h.cleared = true
		h.at.Cleared(h.id)
	}
}

// post asks for the lock, now and then twice at once, as a client does that
// repeats a request which it believes lost. It returns how many answers told of
// the grant.
func (w *worker) post(ctx context.Context, stays locker.Instant, r locker.Request) (st locker.Status, told int) {
	type answer struct {
		st       locker.Status
		repeated bool
		err      error
	}
	answers := make([]answer, 1)
	if r.Owner != "" && w.chance(0.1) {
		answers = make([]answer, 2)
	}
	kind := "POST "
	if r.Wait > 0 {
		kind = "wait "
	}
	var asking sync.WaitGroup
	w.timed("POST", stays, func() {
		for i := range answers {
			asking.Go(func() {
				a := &answers[i]
				a.st, a.repeated, a.err = w.at.Acquire(ctx, r)
			})
		}
		asking.Wait()
	})
	for _, a := range answers {
		w.tally.add(kind + w.outcome(r, a.repeated, a.err))
		switch {
		case a.err != nil:
			continue
		case told > 0 && a.st.Fence != st.Fence:
			w.t.Errorf("%s was granted %q twice at once: %d and %d", w.name, r.Key, st.Fence, a.st.Fence)
		case told > 0:
			w.at.Cleared(a.st.ID)
		default:
			st = a.st
		}
		told++
	}
	// It is told at the instant of the later answer.
	if st.ValidFor = st.ValidUntil.Sub(w.world.now()); told > 0 && st.ValidFor <= 0 {
		w.t.Errorf("%s is told that it holds %q once that is over", w.name, r.Key)
	}
	return st, told
}

// outcome names an answer, and fails the test if it is none that a request may
// have here.
func (w *worker) outcome(r locker.Request, repeated bool, err error) string {
	var held *locker.HeldError
	var store *locker.StoreError
	switch {
	case err == nil && repeated:
		return "repeated"
	case err == nil:
		return "granted"
	case errors.As(err, &held) && held.TimedOut == (r.Wait > 0):
		if held.Queued && r.Wait == 0 {
			return "queued"
		}
		return "held"
	case errors.Is(err, locker.ErrDraining), errors.Is(err, locker.ErrShuttingDown):
		if w.at.Draining() {
			return "refused"
		}
	case errors.As(err, &store) && store.Certain:
		return "failed"
	case errors.Is(err, locker.ErrAcquireUnresolved):
		return "unresolved"
	case errors.Is(err, locker.ErrOwnerBusy):
		return "busy"
	case errors.Is(err, locker.ErrCallerGone):
		return "gone"
	}
	w.t.Errorf("%s: POST: %v", w.name, err)
	return "unexpected"
}

// tend does something with the held lock until the worker has had enough of
// it, or it is over.
func (h *hold) tend(r locker.Request) {
	for range h.random.IntN(6) {
		h.pause(3 * time.Second)
		if h.leaves() {
			return
		}
		switch h.random.IntN(8) {
		case 0, 1:
			h.patch()
		case 2:
			h.repeat(r)
		case 3:
			h.trespass(r)
		default:
			h.get()
		}
		if h.over {
			return
		}
	}
}

func (h *hold) handle() locker.Handle { return locker.Handle{Fence: h.fence} }

// leaves tells whether the sidecar or the worker has ended meanwhile.
func (h *hold) leaves() bool {
	if !h.at.isDead() && h.at.letGo(h.cleared) == 0 {
		return false
	}
	h.tally.add("ended with its pod")
	h.ends()
	return true
}

func (h *hold) get() {
	st, err := h.at.Get(h.key, h.handle())
	if err != nil {
		h.lost("GET", err)
		return
	}
	h.tally.add("GET held")
	h.told(st)
}

func (h *hold) patch() {
	var c locker.Changes
	if h.chance(0.7) {
		ttl := h.ttl()
		c.TTL = &ttl
	}
	if h.chance(0.1) {
		maxHold := time.Minute
		c.MaxHold = &maxHold
	}
	if h.chance(0.3) {
		note := "patched"
		c.Note = &note
	}
	sent := h.world.now()
	var st locker.Status
	var err error
	h.timed("PATCH", sent, func() { st, err = h.at.Extend(context.Background(), h.key, h.handle(), c) })
	var store *locker.StoreError
	switch {
	case err == nil:
		h.tally.add("PATCH extended")
		h.told(st)
	case errors.Is(err, locker.ErrExtendUnconfirmed):
		h.tally.add("PATCH unconfirmed")
		if c.TTL != nil {
			h.until = min(h.until, sent.Add(*c.TTL-locker.DriftMargin(*c.TTL)))
		}
		h.get()
	case errors.As(err, &store) && store.Certain:
		h.tally.add("PATCH failed")
		h.get()
	default:
		h.lost("PATCH", err)
	}
}

// repeat sends the owner's POST again.
func (h *hold) repeat(r locker.Request) {
	if r.Owner == "" {
		return
	}
	if _, err := h.at.Get(h.key, h.handle()); err != nil {
		h.lost("GET", err)
		return // a POST would ask for a new grant
	}
	st, repeated, err := h.at.Acquire(context.Background(), r)
	if err != nil || !repeated {
		if h.leaves() {
			return
		}
		h.t.Errorf("%s holds %q and repeats its request: repeated %v, %v", h.name, h.key, repeated, err)
		return
	}
	h.tally.add("POST repeated")
	h.told(st)
	h.at.Cleared(st.ID)
}

// trespass acts on the lock as somebody else.
func (h *hold) trespass(r locker.Request) {
	err := h.at.Release(context.Background(), h.key, locker.Handle{Owner: "nobody"}, locker.ReleaseOptions{})
	if !errors.Is(err, locker.ErrOwnerMismatch) && !errors.Is(err, locker.ErrNotHeld) {
		h.t.Errorf("a stranger's release of %q: %v", h.key, err)
	}
	r.Owner, r.TTL, r.Wait = "nobody", time.Second, 0
	if _, err := h.at.Get(h.key, h.handle()); err != nil {
		h.lost("GET", err)
		return
	}
	if err := h.at.tryTake(r); !errors.As(err, new(*locker.HeldError)) && !h.leaves() {
		h.t.Errorf("a stranger's request for %q: %v", h.key, err)
	}
}

// lost takes in that the lock is not held any more.
func (h *hold) lost(what string, err error) {
	if h.leaves() {
		return
	}
	var lost *locker.LostError
	if !errors.As(err, &lost) || lost.Fence != h.fence {
		h.t.Errorf("%s holds fence %d of %q; %s: %v", h.name, h.fence, h.key, what, err)
	} else {
		h.tally.add(what + " lost, " + string(lost.Cause))
		byStore := lost.Cause == locker.CauseGone || lost.Cause == locker.CauseTaken
		if byStore && !h.book.wipedWithin(h.from.Add(-storeTimeout), h.world.now()) {
			h.t.Errorf("%s lost %q: %v, though the store has lost nothing", h.name, h.key, lost.Cause)
		}
	}
	h.ends()
}

// finish gives the lock back, or leaves it to end by itself.
func (h *hold) finish(r locker.Request) {
	if h.over || h.leaves() {
		return
	}
	if !r.Renew && h.chance(0.3) {
		h.tally.add("left to expire")
		for !h.over {
			h.pause(5 * time.Second)
			if !h.leaves() {
				h.get()
			}
		}
		return
	}
	h.ends() // from the moment it asks, it counts on nothing
	if r.Owner != "" && h.chance(0.2) {
		released, unconfirmed := h.at.ReleaseWhere(context.Background(), r.Owner, false)
		h.tally.add(fmt.Sprintf("DELETE all: %d and %d", len(released), len(unconfirmed)))
		return
	}
	for {
		again := h.delete()
		if !again || h.chance(0.5) {
			return
		}
		h.pause(time.Second)
	}
}

// delete gives the lock back and tells whether to ask again how it went.
func (h *hold) delete() (again bool) {
	var err error
	options := locker.ReleaseOptions{SkipMinHold: h.chance(0.5)}
	h.timed("DELETE", h.world.now(), func() { err = h.at.Release(context.Background(), h.key, h.handle(), options) })
	var open *locker.UnconfirmedError
	var lost *locker.LostError
	switch {
	case err == nil:
		h.tally.add("DELETE released")
	case errors.As(err, &open):
		h.tally.add("DELETE unconfirmed")
		return true
	case errors.As(err, &lost):
		h.lost("DELETE", err)
	case h.at.isDead() || h.at.letGo(h.cleared) != 0:
	default:
		// It ended before, and that was forgotten when the owner asked anew:
		// only an owner that has let go may hear this.
		h.t.Errorf("%s: DELETE: %v", h.name, err)
	}
	return false
}
