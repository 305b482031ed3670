package locker_test

import (
	"fmt"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// pod is a sidecar of the state-machine test, behind a link that fails as the
// test wants.
type pod struct {
	*sidecar
	name   string
	faults *lockertest.Faulty

	mu    sync.Mutex
	cut   bool
	next  []lockertest.Fault // what befalls the next calls
	shaky locker.Instant     // a fault may have had consequences until then
}

func (w *world) pod(name string) *pod {
	p := &pod{name: name}
	p.faults = lockertest.NewFaulty(w.store, p.plan(w.now))
	p.sidecar = w.sidecarOn(name, newWire(w.t, w.now, p.faults), locker.Config{})
	return p
}

// shake takes in that a fault happens now. Its consequences are over once all
// that it delayed is, and the clean-up after it.
func (p *pod) shake(now locker.Instant) { p.shaky = now.Add(5 * time.Second) }

func (p *pod) plan(now locker.Clock) lockertest.Plan {
	return func(call lockertest.Call) lockertest.Fault {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.cut:
			p.shake(now())
			return lockertest.Fault{Refuse: errBroken}
		case len(p.next) > 0:
			p.shake(now())
			fault := p.next[0]
			p.next = p.next[1:]
			return fault
		}
		return lockertest.Fault{}
	}
}

// healthy tells whether no fault can show that befell it after that instant,
// or will befall its next call.
func (p *pod) healthy(since locker.Instant) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cut && len(p.next) == 0 && p.shaky <= since
}

func (p *pod) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// crash stops the sidecar dead. What is on its way is executed all the same.
func (p *pod) crash() {
	p.set(func() { p.cut = true })
	p.stop()
}

// modelHold is a grant that was reported and not given back.
type modelHold struct {
	pod     *pod
	owner   string
	fence   locker.Fence
	ttl     time.Duration
	from    locker.Instant // when it was reported
	until   locker.Instant // as last reported
	forgot  locker.Instant // when the store lost it; 0 for not
	settled locker.Instant // an earlier PATCH cannot be executed any more
}

// modelKey is what the reference model knows of a key: who was told to hold
// it, sidecars that have crashed included.
type modelKey struct {
	holds   []*modelHold
	highest locker.Fence
}

// valid returns the holds that somebody may rely on, but for those that the
// store has lost.
func (k *modelKey) valid(now locker.Instant) (holds []*modelHold) {
	for _, h := range k.holds {
		if h.forgot == 0 && now < h.until {
			holds = append(holds, h)
		}
	}
	return holds
}

func (k *modelKey) of(p *pod) *modelHold {
	for _, h := range k.holds {
		if h.pod == p {
			return h
		}
	}
	return nil
}

func (k *modelKey) drop(h *modelHold) {
	for i, other := range k.holds {
		if other == h {
			k.holds = append(k.holds[:i:i], k.holds[i+1:]...)
			return
		}
	}
}

func (h *modelHold) String() string {
	return fmt.Sprintf("%s as %q with fence %d, told at %d, until %d", h.pod.name, h.owner, h.fence, h.from, h.until)
}

// drawDelay draws how long a request or a reply travels; half of the delays
// are longer than a caller waits.
func drawDelay(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 2*int(storeTimeout/time.Millisecond)).Draw(t, "delay in ms")) * time.Millisecond
}
