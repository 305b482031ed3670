package locker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// modelWait is a POST that waits, which goes on beside the other commands.
type modelWait struct {
	pod   *pod
	req   locker.Request
	leave context.CancelFunc
	began locker.Instant
	ends  locker.Instant // when its caller waits no more
	got   chan waited
}

// waited is the answer to a modelWait.
type waited struct {
	*modelWait
	st       locker.Status
	repeated bool
	err      error
	at       locker.Instant
}

// wait is a POST that waits.
func (m *machine) wait(t *rapid.T) {
	key, _ := m.drawKey(t)
	m.asked++
	r := owned(key, rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(t, "owner"))
	r.TTL, r.Note = drawTTL(t), fmt.Sprint("wait ", m.asked)
	r.Wait = time.Duration(rapid.IntRange(200, 15_000).Draw(t, "wait in ms")) * time.Millisecond
	ctx, leave := context.WithCancel(context.Background())
	w := &modelWait{pod: m.drawPod(t), req: r, leave: leave, began: m.now(), ends: m.now().Add(r.Wait), got: make(chan waited, 1)}
	go func() {
		a := waited{modelWait: w}
		a.st, a.repeated, a.err = w.pod.Acquire(ctx, r)
		a.at = m.now()
		w.got <- a
	}()
	m.waits = append(m.waits, w)
}

// giveUp has the caller of one that waits go away.
func (m *machine) giveUp(t *rapid.T) {
	if len(m.waits) == 0 {
		t.Skip("nobody waits")
	}
	w := m.waits[rapid.IntRange(0, len(m.waits)-1).Draw(t, "wait")]
	w.leave()
	w.ends = min(w.ends, m.now())
}

// cutListener ends the connection over which a sidecar hears hints.
func (m *machine) cutListener(t *rapid.T) {
	p := m.drawPod(t)
	p.set(func() { p.shake(m.now()) })
	p.faults.CutListeners(drawDelay(t))
}

// forget takes in that nobody hears the answers of a sidecar any more.
func (m *machine) forget(p *pod) {
	m.waits = slices.DeleteFunc(m.waits, func(w *modelWait) bool {
		if w.pod == p {
			w.leave()
		}
		return w.pod == p
	})
}

// waitedFor tells whether somebody has waited for the key for so long.
func (m *machine) waitedFor(key locker.Key, long time.Duration) bool {
	return slices.ContainsFunc(m.waits, func(w *modelWait) bool {
		return w.req.Key == key && w.began.Add(long) < m.now()
	})
}

// quiet tells whether nobody waits for the key, nor has a moment ago.
func (m *machine) quiet(key locker.Key) bool {
	waits := slices.ContainsFunc(m.waits, func(w *modelWait) bool { return w.req.Key == key })
	return !waits && m.store.LineTTL(key) == 0
}

// hear takes in the answers that those who wait have had meanwhile.
func (m *machine) hear(t *rapid.T) {
	synctest.Wait()
	var answers []waited
	m.waits = slices.DeleteFunc(m.waits, func(w *modelWait) bool {
		select {
		case a := <-w.got:
			answers = append(answers, a)
			return true
		default:
			if late := m.now().Sub(w.ends.Add(storeTimeout)); late > 0 {
				t.Fatalf("%s still waits for %q, %v after its time", w.pod.name, w.req.Key, late)
			}
			return false
		}
	})
	slices.SortStableFunc(answers, func(a, b waited) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.st.Fence, b.st.Fence))
	})
	for _, a := range answers {
		m.judge(t, a)
	}
}

func (m *machine) judge(t *rapid.T, a waited) {
	if late := a.at.Sub(a.ends.Add(storeTimeout)); late > 0 {
		t.Fatalf("%s had its answer for %q %v after its wait", a.pod.name, a.req.Key, late)
	}
	k := m.keys[a.req.Key]
	var held *locker.HeldError
	var store *locker.StoreError
	switch err := a.err; {
	case err == nil && a.repeated:
		if h := k.of(a.pod); h == nil || h.fence != a.st.Fence || h.owner != a.req.Owner {
			t.Fatalf("told again of fence %d, which %s was never granted as %q", a.st.Fence, a.pod.name, a.req.Owner)
		}
	case err == nil:
		h := &modelHold{pod: a.pod, owner: a.req.Owner, fence: a.st.Fence, ttl: a.st.TTL, from: a.at, until: a.st.ValidUntil}
		if m.wiped >= a.at.Add(-storeTimeout) && !m.stands(a.req) {
			h.forgot = m.wiped // the answer was on its way
		}
		m.grant(t, a.req.Key, k, h)
	case errors.As(err, &held) && held.TimedOut, errors.Is(err, locker.ErrOwnerBusy), errors.Is(err, locker.ErrAcquireUnresolved):
	case errors.Is(err, locker.ErrCallerGone) && a.ends < a.at.Add(1):
	case errors.As(err, &store) && store.Certain && !a.pod.healthy(a.at):
	default:
		t.Fatalf("%s waits for %q: %v", a.pod.name, a.req.Key, err)
	}
}

// stands tells whether the store has the lock of that request.
func (m *machine) stands(r locker.Request) bool {
	o, err := m.store.Inspect(context.Background(), r.Key)
	return err == nil && o.Holder != nil && o.Holder.Note == r.Note
}

// grant takes in that a sidecar has reported a grant.
func (m *machine) grant(t *rapid.T, key locker.Key, k *modelKey, h *modelHold) {
	for _, other := range k.valid(h.from) {
		if h.forgot == 0 {
			t.Fatalf("%q was granted for %v while it is held by %v", key, h, other)
		}
	}
	if h.forgot == 0 && h.fence <= k.highest {
		t.Fatalf("fence %d of %q after %d", h.fence, key, k.highest)
	}
	if mine := k.of(h.pod); mine != nil {
		k.drop(mine) // superseded in its own sidecar
	}
	k.highest = max(k.highest, h.fence)
	k.holds = append(k.holds, h)
}

// serveAll gives back all that is held until nobody waits any more. Nobody may
// wait for a free key for longer than it takes to find out who has died.
func (m *machine) serveAll(t *rapid.T) {
	const longest = 4 * time.Second
	free := make(map[locker.Key]time.Duration)
	for {
		m.hear(t)
		for key := range m.keys {
			if _, _, taken := m.store.Value(key); taken {
				free[key] = 0
			} else if free[key] += time.Second; free[key] > longest && m.waitedFor(key, longest) {
				t.Fatalf("%q is free for %v and those who wait do not take it", key, free[key])
			}
		}
		last := len(m.waits) == 0
		for _, p := range m.pods {
			m.hear(t) // what the release before has brought
			p.ReleaseWhere(context.Background(), "", true)
			for _, k := range m.keys {
				if h := k.of(p); h != nil {
					k.drop(h)
				}
			}
		}
		if last {
			return
		}
		m.pass(time.Second)
	}
}
