package locker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// mortal is a sidecar that ends at one of its steps. Each write to its journal
// is two: before and after; each call to the store is one.
type mortal struct {
	*sidecar
	w      *world
	book   *notebook
	faults *lockertest.Faulty
	wire   *wire
	ends   ending
	died   chan struct{} // closed then

	mu    sync.Mutex
	steps int
	where string         // what it was about to do, or had done
	at    locker.Instant // when it died

	lastWords locker.Status // what it told of the key when it died; no fence if nothing
}

// ending says at which step a process ends, and what becomes of a call to the
// store that it was making.
type ending struct {
	step int // 0 for never
	call callFate
}

type callFate string

const (
	unsent   callFate = "was not sent"
	executed callFate = "was executed"
	late     callFate = "was executed late"
)

const lateBy = storeTimeout - 20*time.Millisecond

func (w *world) mortal(name string, book *notebook, e ending) *mortal {
	m := &mortal{w: w, book: book, ends: e, died: make(chan struct{})}
	m.faults = lockertest.NewFaulty(w.store, func(c lockertest.Call) lockertest.Fault {
		switch dies, dead := m.step("call " + string(c.Op)); {
		case dies && m.ends.call == executed:
			return lockertest.Fault{LoseReply: true}
		case dies && m.ends.call == late:
			return lockertest.Fault{LoseReply: true, RequestDelay: lateBy}
		case dead:
			return lockertest.Fault{Refuse: errDown}
		}
		return lockertest.Fault{}
	})
	m.wire = newWire(w.t, w.now, m.faults)
	m.sidecar = w.sidecarOn(name, m.wire, locker.Config{Journal: book})
	book.set(func() {
		book.step = func(done bool, records []locker.Record) {
			what := "before"
			if done {
				what = "after"
			}
			for _, r := range records {
				what += fmt.Sprintf(" %d", r.Phase)
			}
			if dies, _ := m.step(what); !dies {
				return
			}
			// Somebody may ask at its last moment, and counts on what it says.
			if st, err := m.Get("k", locker.Handle{}); err == nil {
				m.mu.Lock()
				m.lastWords = st
				m.mu.Unlock()
			}
		}
	})
	return m
}

// step takes in that something is about to happen, and tells whether the
// process ends here, and whether it has ended by now.
func (m *mortal) step(what string) (dies, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at != 0 {
		return false, true
	}
	m.steps++
	if m.steps != m.ends.step {
		return false, false
	}
	m.where, m.at = what, m.w.now()
	m.book.set(func() { m.book.dead = true })
	if !strings.HasPrefix(what, "call") {
		m.wire.ends() // else the call may yet be made
	}
	close(m.died)
	return true, true
}

func (m *mortal) isDead() bool {
	select {
	case <-m.died:
		return true
	default:
		return false
	}
}

// client is one caller of a sidecar that may die, and what it counts on.
type client struct {
	m     *mortal
	owner string
	key   locker.Key

	st      locker.Status // as it was told last
	took    locker.Instant
	holds   bool // it was granted, and has not asked to give it back
	asked   bool // it has asked for it
	deleted bool // it has asked to give it back
	unheard bool // and had no answer
}

// lives tells whether to go on. It lets time pass, while the sidecar lives.
func (c *client) lives(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-c.m.died:
		case <-timer.C:
		}
	}
	return !c.m.isDead()
}

func (c *client) take(r locker.Request) bool {
	if !c.lives(0) {
		return false
	}
	c.key, c.asked = r.Key, true
	r.Owner, c.took = c.owner, c.m.w.now()
	st, _, err := c.m.Acquire(context.Background(), r)
	if c.m.isDead() {
		return false // whatever it was, nobody heard of it
	}
	if err != nil {
		c.m.t.Errorf("%s: POST: %v", c.owner, err)
		return false
	}
	c.st, c.holds = st, true
	return true
}

// hearLastWords takes in what the process told at its last moment.
func (c *client) hearLastWords() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.holds && c.m.lastWords.Fence == c.st.Fence {
		c.st = c.m.lastWords
	}
}

func (c *client) handle() locker.Handle { return locker.Handle{Fence: c.st.Fence} }

func (c *client) patch(ttl time.Duration) bool {
	if !c.lives(0) {
		return false
	}
	sent := c.m.w.now()
	st, err := c.m.Extend(context.Background(), c.key, c.handle(), locker.Changes{TTL: &ttl})
	if c.m.isDead() {
		// Who asks for a shorter lease and hears nothing counts on that.
		c.st.ValidUntil = min(c.st.ValidUntil, sent.Add(ttl-locker.DriftMargin(ttl)))
		return false
	}
	if err != nil {
		c.m.t.Errorf("%s: PATCH: %v", c.owner, err)
	}
	c.st = st
	return true
}

func (c *client) delete() bool {
	if !c.lives(0) {
		return false
	}
	c.holds, c.deleted = false, true
	err := c.m.Release(context.Background(), c.key, c.handle(), locker.ReleaseOptions{})
	if c.m.isDead() {
		c.unheard = true
		return false
	}
	if err != nil {
		c.m.t.Errorf("%s: DELETE: %v", c.owner, err)
	}
	return true
}

// scenario is what clients do with a sidecar that may die meanwhile. rival is a
// healthy one on the same store.
type scenario struct {
	ttl     time.Duration
	minHold time.Duration
	play    func(m *mortal, rival *sidecar, clients []*client)
}

var scenarios = map[string]scenario{
	"held and renewed": {ttl: 3 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		if !c[0].take(want("k", 3*time.Second)) {
			return
		}
		m.Delivered(c[0].st.ID)
		if c[0].lives(2200*time.Millisecond) && c[0].patch(1500*time.Millisecond) && c[0].lives(700*time.Millisecond) &&
			c[0].patch(3*time.Second) && c[0].lives(1200*time.Millisecond) {
			c[0].delete()
		}
	}},
	"told and nothing known of it": {ttl: 3 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		if c[0].take(want("k", 3*time.Second)) && c[0].lives(2200*time.Millisecond) {
			c[0].delete()
		}
	}},
	"verified only": {ttl: 3 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		if !c[0].take(locker.Request{Key: "k", TTL: 3 * time.Second}) {
			return
		}
		m.Delivered(c[0].st.ID)
		if c[0].lives(1500*time.Millisecond) && c[0].patch(2*time.Second) && c[0].lives(1500*time.Millisecond) {
			c[0].delete()
		}
	}},
	"held as long as it may be": {ttl: 2 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		r := want("k", 2*time.Second)
		r.MaxHold = 3 * time.Second
		if c[0].take(r) {
			m.Delivered(c[0].st.ID)
			c[0].lives(4 * time.Second)
		}
	}},
	"minimum hold": {ttl: time.Second, minHold: 4 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		r := want("k", time.Second)
		r.MinHold = 4 * time.Second
		if c[0].take(r) {
			m.Delivered(c[0].st.ID)
			if c[0].lives(500 * time.Millisecond) {
				c[0].delete()
			}
		}
	}},
	"given back undelivered": {ttl: 3 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		if c[0].take(want("k", 3*time.Second)) {
			c[0].holds, c[0].deleted = false, true
			m.GiveBack(c[0].st.ID)
			c[0].lives(time.Second)
		}
	}},
	"waited for": {ttl: 3 * time.Second, play: func(m *mortal, rival *sidecar, c []*client) {
		rival.take(want("k", time.Minute))
		time.AfterFunc(1500*time.Millisecond, func() { _ = rival.release("k") })
		r := want("k", 3*time.Second)
		r.Wait = 10 * time.Second
		if c[0].take(r) {
			m.Delivered(c[0].st.ID)
			if c[0].lives(1200 * time.Millisecond) {
				c[0].delete()
			}
		}
	}},
	"handed over in the pod": {ttl: 3 * time.Second, play: func(m *mortal, _ *sidecar, c []*client) {
		if !c[0].take(want("k", 3*time.Second)) {
			return
		}
		m.Delivered(c[0].st.ID)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			r := want("k", 3*time.Second)
			r.Wait = 10 * time.Second
			if c[1].take(r) {
				m.Delivered(c[1].st.ID)
				if c[1].lives(1200 * time.Millisecond) {
					c[1].delete()
				}
			}
		})
		if c[0].lives(500 * time.Millisecond) {
			c[0].delete()
		}
	}},
}

// Whatever a process was about to do when it was killed, and whatever became of
// a request that it had sent: who was told of a lock still has it when the next
// process starts within the lease, two never hold it, and what nobody was told
// of is free after a TTL.
func TestAProcessMayBeKilledAtAnyStep(t *testing.T) {
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delays := []time.Duration{0, 400 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second}
			runs := 0
			for step := 1; ; step++ {
				finished := true
				for _, fate := range []callFate{unsent, executed, late} {
					for _, delay := range delays {
						finished = crashRun(t, name, sc, ending{step, fate}, delay)
						runs++
						if t.Failed() || finished {
							break
						}
					}
				}
				if t.Failed() || finished {
					t.Logf("%d steps, %d runs", step-1, runs)
					return
				}
			}
		})
	}
}

// crashRun plays one scenario and tells whether the process has survived it.
func crashRun(t *testing.T, name string, sc scenario, e ending, delay time.Duration) (survived bool) {
	inWorld(t, func(w *world) {
		rival := w.sidecar("rival")
		m := w.mortal("pod", newNotebook(), e)
		clients := []*client{{m: m, owner: "w1"}, {m: m, owner: "w2"}}
		r := &rivalry{w: w, rival: rival, clients: clients}
		sc.play(m, rival, clients)
		defer m.faults.Close()
		if !m.isDead() {
			survived = true
			return
		}
		defer func() {
			if t.Failed() {
				t.Logf("%s: killed at step %d (%s), the call %s, started again after %v", name, e.step, m.where, e.call, delay)
			}
		}()
		for _, c := range clients {
			c.hearLastWords()
		}
		r.begin()
		w.pass(delay)
		m.stop()
		next := w.sidecarOn("pod", m.wire.next(lockertest.NewFaulty(w.store, nil)), locker.Config{Journal: m.book.next()})
		r.judge(next, m, sc)
		r.end()
		settled(w, next, rival)
	})
	return survived
}

// settled checks that nothing is left of anything, in the journal as well.
func settled(w *world, sidecars ...*sidecar) {
	for _, s := range sidecars {
		s.ReleaseWhere(context.Background(), "", true)
	}
	w.pass(10 * time.Second)
	if _, left, taken := w.store.Value("k"); taken {
		w.t.Errorf("the key is taken for another %v", left)
	}
	for _, s := range sidecars {
		if n := s.Residue(); n != 0 {
			w.t.Errorf("%d things are left in the table", n)
		}
		s.stop()
		if book, ok := s.journal.(*notebook); ok {
			left := book.phases()
			delete(left, locker.PhaseLost) // remembered for those who ask
			if len(left) > 0 {
				w.t.Errorf("left in the journal: %v", left)
			}
		}
	}
}
