package locker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

func TestAnySequenceOfRequestsAndFaultsKeepsTheInvariants(t *testing.T) {
	checkAtLeast(t, 1000)
	inWorld(t, func(w *world) {
		// A plain TB, since rapid asks a *testing.T for its deadline, which
		// panics in a bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			w.store = memory.New(memory.Config{Now: w.now, Wall: time.Now})
			m := &machine{world: w, keys: map[locker.Key]*modelKey{"a": {}, "b": {}}}
			defer m.end()
			for i := range 2 {
				m.pods = append(m.pods, w.pod(fmt.Sprintf("pod-%d", i)))
			}
			rt.Repeat(map[string]func(*rapid.T){
				"POST": m.post, "POST again": m.repeat, "DELETE": m.delete, "PATCH": m.patch, "advance": m.advance,
				"cut": m.cut, "heal": m.heal, "crash": m.crash, "wipe": m.wipe,
				"lose a reply": m.loseReply, "hold a request back": m.holdBack, "delay a reply": m.delayReply,
				"duplicate": m.duplicate,
				"POST wait": m.wait, "POST wait again": m.wait, "give up": m.giveUp, "cut a listener": m.cutListener,
				"": m.check,
			})
			m.settle(rt)
			figures.Count(figures.Histories, figures.Virtual, 1)
		})
	})
}

// checkAtLeast has rapid try that many sequences, a tenth of it in short mode,
// where its own flag asks for no other number.
func checkAtLeast(t *testing.T, checks int) {
	if testing.Short() {
		checks /= 10
	}
	checksFlag := flag.Lookup("rapid.checks")
	if checksFlag.Value.String() != checksFlag.DefValue {
		return
	}
	if err := flag.Set(checksFlag.Name, strconv.Itoa(checks)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(checksFlag.Name, checksFlag.DefValue) }) // it was valid before
}

// machine takes the sidecars and the model through the same commands.
type machine struct {
	*world
	pods    []*pod
	crashed []*pod
	keys    map[locker.Key]*modelKey
	waits   []*modelWait
	asked   int
	wiped   locker.Instant
}

func (m *machine) drawPod(t *rapid.T) *pod {
	return m.pods[rapid.IntRange(0, len(m.pods)-1).Draw(t, "pod")]
}

func (m *machine) drawKey(t *rapid.T) (locker.Key, *modelKey) {
	key := rapid.SampledFrom([]locker.Key{"a", "b"}).Draw(t, "key")
	return key, m.keys[key]
}

func drawTTL(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second}).Draw(t, "ttl")
}

func (m *machine) post(t *rapid.T) {
	p := m.drawPod(t)
	key, k := m.drawKey(t)
	r := owned(key, rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "owner"))
	r.TTL = drawTTL(t)
	m.ask(t, p, k, r)
}

// repeat is a POST by an owner that holds the lock, as far as it knows.
func (m *machine) repeat(t *rapid.T) {
	p := m.drawPod(t)
	key, k := m.drawKey(t)
	h := k.of(p)
	if h == nil {
		t.Skip("it holds nothing")
	}
	r := owned(key, h.owner)
	r.TTL = h.ttl
	m.ask(t, p, k, r)
}

func (m *machine) ask(t *rapid.T, p *pod, k *modelKey, r locker.Request) {
	began := m.now()
	_, _, taken := m.store.Value(r.Key)
	healthy := p.healthy(began) && m.quiet(r.Key)
	st, repeated, err := p.Acquire(context.Background(), r)
	now := m.now()
	m.hear(t)
	mine := k.of(p)
	if now.Sub(began) > storeTimeout {
		t.Fatalf("POST took %v", now.Sub(began))
	}
	switch {
	case err == nil && repeated:
		if mine == nil || mine.fence != st.Fence || mine.owner != r.Owner {
			t.Fatalf("told again of fence %d, which %s was never granted as %q", st.Fence, p.name, r.Owner)
		}
		mine.until = st.ValidUntil
	case err == nil:
		m.grant(t, r.Key, k, &modelHold{pod: p, owner: r.Owner, fence: st.Fence, ttl: st.TTL, from: now, until: st.ValidUntil})
	default:
		var held *locker.HeldError
		if healthy && !taken && mine == nil {
			t.Fatalf("%q is free and %s has had no fault: %v", r.Key, p.name, err)
		}
		if healthy && taken && mine == nil && !errors.As(err, &held) {
			t.Fatalf("%q is taken and %s has had no fault: %v, want held", r.Key, p.name, err)
		}
	}
}

func (m *machine) delete(t *rapid.T) {
	p := m.drawPod(t)
	key, k := m.drawKey(t)
	h := k.of(p)
	if h == nil {
		if err := p.Release(context.Background(), key, locker.Handle{Owner: "nobody"}, locker.ReleaseOptions{}); err == nil {
			t.Fatalf("%s released %q for nobody", p.name, key)
		}
		return
	}
	began := m.now()
	certain := p.healthy(h.from) && h.forgot == 0 && began < h.until
	err := p.Release(context.Background(), key, locker.Handle{Fence: h.fence}, locker.ReleaseOptions{})
	if took := m.now().Sub(began); took > storeTimeout {
		t.Fatalf("DELETE took %v", took)
	}
	if certain && err != nil {
		t.Fatalf("DELETE of %q by %v: %v", key, h, err)
	}
	if _, _, taken := m.store.Value(key); certain && taken && m.quiet(key) {
		t.Fatalf("%q is taken after its release", key)
	}
	if err := p.tryRelease(key, h.fence); err == nil && certain {
		t.Fatalf("%q was released twice", key)
	}
	k.drop(h)
}

func (s *sidecar) tryRelease(key locker.Key, fence locker.Fence) error {
	return s.Release(context.Background(), key, locker.Handle{Fence: fence}, locker.ReleaseOptions{})
}

func (m *machine) patch(t *rapid.T) {
	p := m.drawPod(t)
	key, k := m.drawKey(t)
	h := k.of(p)
	if h == nil {
		t.Skip("it holds nothing")
	}
	ttl := drawTTL(t)
	began := m.now()
	certain := p.healthy(h.from) && h.forgot == 0 && began < h.until
	st, err := p.Extend(context.Background(), key, locker.Handle{Fence: h.fence}, locker.Changes{TTL: &ttl})
	if took := m.now().Sub(began); took > storeTimeout {
		t.Fatalf("PATCH took %v", took)
	}
	// A shorter lease that was asked for a moment ago may bound this one.
	full := began.Add(ttl - locker.DriftMargin(ttl))
	unbounded := ttl <= h.ttl && began >= h.settled
	h.settled = began.Add(storeTimeout)
	switch {
	case err == nil:
		h.ttl, h.until = ttl, st.ValidUntil
		if st.TTL != ttl || certain && (st.ValidUntil > full || unbounded && st.ValidUntil != full) {
			t.Fatalf("PATCH to %v: TTL %v, valid for %v", ttl, st.TTL, st.ValidFor)
		}
	case certain:
		t.Fatalf("PATCH of %q by %v: %v", key, h, err)
	case errors.Is(err, locker.ErrExtendUnconfirmed):
		h.ttl, h.until = max(h.ttl, ttl), min(h.until, began.Add(ttl-locker.DriftMargin(ttl)))
	}
}

func (m *machine) advance(t *rapid.T) {
	m.pass(time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond)
}

func (m *machine) cut(t *rapid.T) {
	p := m.drawPod(t)
	p.set(func() {
		p.cut = true
		p.shake(m.now())
	})
}

func (m *machine) heal(t *rapid.T) {
	p := m.drawPod(t)
	p.set(func() {
		if p.cut {
			p.cut = false
			p.shake(m.now())
		}
	})
}

func (m *machine) befall(p *pod, fault lockertest.Fault) {
	p.set(func() { p.next = append(p.next, fault) })
}

func (m *machine) loseReply(t *rapid.T) {
	fault := lockertest.Fault{LoseReply: true}
	if rapid.Bool().Draw(t, "late") {
		fault.RequestDelay = drawDelay(t)
	}
	m.befall(m.drawPod(t), fault)
}

func (m *machine) delayReply(t *rapid.T) {
	m.befall(m.drawPod(t), lockertest.Fault{ReplyDelay: drawDelay(t)})
}

func (m *machine) holdBack(t *rapid.T) {
	m.befall(m.drawPod(t), lockertest.Fault{RequestDelay: drawDelay(t)})
}

func (m *machine) duplicate(t *rapid.T) {
	m.befall(m.drawPod(t), lockertest.Fault{Duplicates: 1 + rapid.IntRange(0, 1).Draw(t, "more")})
}

// crash stops a sidecar dead and starts another in its place. What it was told
// to hold may be relied on until it ends.
func (m *machine) crash(t *rapid.T) {
	i := rapid.IntRange(0, len(m.pods)-1).Draw(t, "pod")
	m.pods[i].crash()
	m.forget(m.pods[i])
	m.crashed = append(m.crashed, m.pods[i])
	m.pods[i] = m.world.pod(m.pods[i].name)
	for key := range m.keys {
		if m.pods[i].Holds(key) {
			t.Fatalf("a new sidecar holds %q", key)
		}
	}
}

func (m *machine) wipe(*rapid.T) {
	m.pass(time.Millisecond)
	m.store.Wipe()
	m.wiped = m.now()
	for _, k := range m.keys {
		for _, h := range k.holds {
			if h.forgot == 0 {
				h.forgot = m.now()
			}
		}
	}
	m.pass(time.Millisecond)
}

// check compares what every sidecar says with the model, after each command.
func (m *machine) check(t *rapid.T) {
	m.hear(t)
	now := m.now()
	for key, k := range m.keys {
		for _, p := range m.pods {
			m.compare(t, p, key, k, now)
		}
		if valid := k.valid(now); len(valid) > 1 {
			t.Fatalf("two valid holders of %q: %v and %v", key, valid[0], valid[1])
		}
	}
}

func (m *machine) compare(t *rapid.T, p *pod, key locker.Key, k *modelKey, now locker.Instant) {
	st, err := p.Get(key, locker.Handle{})
	h := k.of(p)
	switch {
	case err == nil && (h == nil || h.fence != st.Fence || h.owner != st.Owner):
		t.Fatalf("%s says that it holds %q as %q with fence %d; the model has %v", p.name, key, st.Owner, st.Fence, h)
	case err == nil && h.forgot == 0:
		h.until = st.ValidUntil
		if _, left, _ := m.store.Value(key); left < st.ValidFor {
			t.Fatalf("%s says that it holds %q for %v, the store keeps it for %v", p.name, key, st.ValidFor, left)
		}
	case err == nil:
		h.until = st.ValidUntil
		// At the latest the renewal that is due after a third tells of it.
		if late := now.Sub(h.forgot) - h.ttl/3; p.healthy(h.from) && late > 0 {
			t.Fatalf("%s still holds %q %v after it should have noticed the loss", p.name, key, late)
		}
		if now > h.forgot.Add(h.ttl) {
			t.Fatalf("%s holds %q for longer than it can last since the store lost it", p.name, key)
		}
	case h != nil:
		if h.forgot == 0 && p.healthy(h.from) {
			t.Fatalf("%v has lost %q without a fault: %v", h, key, err)
		}
		if h.forgot == 0 && now < h.until {
			t.Fatalf("%v has lost %q before its end: %v", h, key, err)
		}
		k.drop(h)
	}
}

// settle ends all faults and checks that nothing is left.
func (m *machine) settle(t *rapid.T) {
	for _, p := range m.pods {
		p.set(func() { p.cut, p.next = false, nil })
	}
	m.pass(2 * storeTimeout)
	m.serveAll(t)
	m.pass(15 * time.Second)
	for _, p := range m.pods {
		if n := p.Residue(); n != 0 {
			t.Fatalf("%d things are left in the table of %s", n, p.name)
		}
	}
	for key := range m.keys {
		if _, left, taken := m.store.Value(key); taken {
			t.Fatalf("%q is still taken for %v", key, left)
		}
		if left := m.store.LineTTL(key); left != 0 {
			t.Fatalf("the line for %q is still there for %v", key, left)
		}
	}
}

func (m *machine) end() {
	for _, w := range m.waits {
		w.leave()
	}
	m.pass(2 * storeTimeout)
	for _, p := range append(m.pods, m.crashed...) {
		p.crash()
		p.faults.Close()
	}
}
