package quorum

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// A release reaches the members one after the other, and who asks at the
	// first is refused at the others. So after a member has woken a process
	// hintPatience is left to a majority to do so too, and after a majority has
	// restPatience to the rest, before it is told.
	hintPatience = 10 * time.Millisecond
	restPatience = time.Millisecond

	// listenPatience is how long a majority that is listened to waits for the
	// rest, before those who wait are told.
	listenPatience = 100 * time.Millisecond
)

// Leave implements [locker.Queue].
func (b *Backend) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	if err := over(ctx); err != nil {
		return err
	}
	votes := newTally(b, 1, renewRule)
	return b.poll(ctx, votes, func(ctx context.Context, n *node) []locker.Verdict {
		return []locker.Verdict{{Err: n.Leave(ctx, key, t)}}
	})[0].Err
}

// Listen implements [locker.Queue]. That it is our turn is told once a majority
// says so, or a little later if only some do.
func (b *Backend) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	e := &ear{all: len(b.nodes), need: b.need, hear: hear, hints: make(map[locker.Hint]*ballot), timer: time.NewTimer(time.Hour)}
	defer e.timer.Stop()
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() {
			n.Listen(ctx, process, func(h locker.Hint) { e.take(ctx, i, h) })
		})
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-e.timer.C:
			e.timeOver()
		}
	}
	wg.Wait()
}

// ear puts the hints of all members together.
type ear struct {
	all, need int // members, and a majority of them
	hear      func(locker.Hint)

	mu        sync.Mutex
	timer     *time.Timer
	listening uint64 // the members that we listen to, as bits
	told      bool   // that we listen
	toldBy    time.Time
	hints     map[locker.Hint]*ballot
}

// ballot is the members that have given the same hint, as bits.
type ballot struct {
	by   uint64
	told bool
	due  time.Time // when it is told; then, until when others may come late
}

func (e *ear) take(ctx context.Context, i int, h locker.Hint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	bit, now := uint64(1)<<i, time.Now()
	switch {
	case ctx.Err() != nil:
	case h.Kind == locker.HintListening && !e.told:
		e.listening |= bit
		switch {
		case bits.OnesCount64(e.listening) == e.all:
			e.told = true
			e.hear(h)
		case bits.OnesCount64(e.listening) == e.need:
			e.toldBy = now.Add(listenPatience)
			e.setTimerLocked(now)
		}
	case h.Kind == locker.HintListening:
		e.hear(h)
	default:
		e.countLocked(h, bit, now)
	}
}

func (e *ear) countLocked(h locker.Hint, bit uint64, now time.Time) {
	w := e.hints[h]
	if w == nil || w.by&bit != 0 {
		w = &ballot{due: now.Add(hintPatience)}
		e.hints[h] = w
	}
	w.by |= bit
	switch n := bits.OnesCount64(w.by); {
	case n == e.all:
		delete(e.hints, h)
		if !w.told {
			e.hear(h)
		}
	case n == e.need && !w.told:
		w.due = now.Add(restPatience)
	}
	e.setTimerLocked(now)
}

// timeOver tells what has waited long enough for a majority, or for the rest.
func (e *ear) timeOver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !e.told && !e.toldBy.IsZero() && !now.Before(e.toldBy) {
		e.told = true
		e.hear(locker.Hint{Kind: locker.HintListening})
	}
	for h, w := range e.hints {
		switch {
		case now.Before(w.due):
		case w.told:
			delete(e.hints, h)
		default:
			w.told, w.due = true, now.Add(hintPatience)
			e.hear(h)
		}
	}
	e.setTimerLocked(now)
}

func (e *ear) setTimerLocked(now time.Time) {
	wait := time.Hour
	if !e.told && !e.toldBy.IsZero() {
		wait = e.toldBy.Sub(now)
	}
	for _, w := range e.hints {
		wait = min(wait, w.due.Sub(now))
	}
	e.timer.Reset(max(wait, 0))
}
