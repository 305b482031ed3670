package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// A sidecar is killed again and again, at any moment, its start included, while
// clients of many habits take, hold, extend and give back locks, and those of
// another sidecar want the same ones. LOCKSIDECAR_KILLS sets how often.
func TestAProcessThatIsKilledAtRandomMomentsLosesNothingAndLeaksNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("LOCKSIDECAR_KILLS"), "25"))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	redis := redistest.Start(t)
	l := &ledger{t: t, tally: make(map[string]int)}
	env := []string{"REDIS_ADDRS=" + redis.Addr(), "LOG_LEVEL=info"}
	rival := &pod{p: launch{Env: env}.serve(t)}
	victim := &pod{}
	victim.cond = sync.NewCond(&victim.mu)
	rival.cond = sync.NewCond(&rival.mu)
	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 14 {
		h := &habit{ledger: l, pod: victim, name: fmt.Sprint("w", i), random: rand.New(rand.NewPCG(seed, uint64(i))), keepAlive: i%2 == 0}
		if i >= 11 {
			h.pod, h.name = rival, fmt.Sprint("rival", i)
		}
		clients.Go(func() { h.live(over) })
	}
	killAtRandom(t, victim, append(env, "STATE_DIR="+t.TempDir()), kills, rand.New(rand.NewPCG(seed, 1000)))
	close(over)
	clients.Wait()
	began := time.Now()
	eventually(t, killTTL+2*time.Second, "every lock is free", func() bool { return len(redis.Keys("lock:key*")) == 0 })
	t.Logf("%d kills; all free %v after the last client has gone; %s", kills, time.Since(began).Round(time.Millisecond), l.report())
	if held := victim.now().listed()["held"] + rival.p.listed()["held"]; held != 0 {
		t.Errorf("%d locks are still held", held)
	}
	if l.tally["GET after a restart: held"] == 0 || l.tally["POST: granted"] < kills {
		t.Error("the run shows nothing: hardly a grant, or none that outlived its process")
	}
}

const (
	killTTL  = 2 * time.Second // the longest of the clients
	killKeys = 8
)

// killAtRandom starts one process after the other; the last one lives.
func killAtRandom(t *testing.T, victim *pod, env []string, kills int, random *rand.Rand) {
	upTo := func(most time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(most)))) }
	var last *proc
	for n := range kills + 1 {
		p := launch{Env: env}.start(t)
		if n < kills && random.IntN(5) == 0 {
			upTo(100 * time.Millisecond) // while it starts
			p.Kill()
			continue
		}
		p.findDoors()
		if last != nil {
			p.record.succeeds(p, last)
		}
		last = p
		victim.set(p)
		if n == kills {
			return
		}
		upTo(500 * time.Millisecond)
		victim.set(nil)
		p.Kill()
		if n%20 == 19 {
			time.Sleep(killTTL + 200*time.Millisecond) // every lease ends meanwhile
		}
	}
}

// pod is where a process runs, or the next one soon will.
type pod struct {
	mu   sync.Mutex
	cond *sync.Cond
	p    *proc
}

func (d *pod) set(p *proc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.p = p
	d.cond.Broadcast()
}

// now returns the process, once there is one.
func (d *pod) now() *proc {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.p == nil {
		d.cond.Wait()
	}
	return d.p
}

// ledger is what all clients were told.
type ledger struct {
	t *testing.T

	mu    sync.Mutex
	holds []*killHold
	tally map[string]int
}

func (l *ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally[what]++
}

// killHold is one grant as its client sees it: it counts on it from when it was
// told of it to the end that it was told, unless it hears of another or asks to
// give it back before.
type killHold struct {
	key         string
	fence       locker.Fence
	who         string
	from, until locker.Instant
}

// report checks that no two counted on one lock at a time, and that fencing
// tokens rise from grant to grant.
func (l *ledger) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	byKey := make(map[string][]*killHold)
	for _, h := range l.holds {
		byKey[h.key] = append(byKey[h.key], h)
	}
	for key, holds := range byKey {
		slices.SortFunc(holds, func(a, b *killHold) int { return cmp.Compare(a.from, b.from) })
		for i, b := range holds {
			for _, a := range holds[:i] {
				if both := min(a.until, b.until).Sub(b.from); both > 0 {
					l.t.Errorf("%s: %s with fence %d and %s with fence %d both count on it for %v", key, a.who, a.fence, b.who, b.fence, both)
				}
				if a.fence >= b.fence && a.until <= b.from {
					l.t.Errorf("%s: fence %d after %d", key, b.fence, a.fence)
				}
			}
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(l.tally)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, l.tally[what]))
	}
	return fmt.Sprintf("%d holds; %s", len(l.holds), strings.Join(parts, ", "))
}

// habit is a client. It names itself as owner now and then, keeps its
// connections or opens one for each request as a curl does, and leaves locks to
// the sidecar without asking for a while.
type habit struct {
	*ledger
	pod       *pod
	name      string
	random    *rand.Rand
	keepAlive bool
}

func (h *habit) live(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
			h.turn()
		}
	}
}

func (h *habit) pause(most time.Duration) { time.Sleep(time.Duration(h.random.Int64N(int64(most)))) }

// ask sends a request to the process that runs now.
func (h *habit) ask(method, key string, params ...string) (answer, *proc) {
	p := h.pod.now()
	r, err := http.NewRequest(method, p.URL+"/locks/"+key+"?"+strings.Join(params, "&"), nil)
	if err != nil {
		return answer{Err: err}, p
	}
	r.Close = !h.keepAlive // as a curl does
	return p.Do(r), p
}

func (h *habit) turn() {
	key := fmt.Sprint("key", h.random.IntN(killKeys))
	params := []string{"ttl=" + []string{"1s", "1500ms", killTTL.String()}[h.random.IntN(3)]}
	owned := h.random.IntN(2) == 0
	if owned {
		params = append(params, "owner="+h.name)
	}
	if h.random.IntN(3) == 0 {
		params = append(params, "wait=300ms")
	}
	a, p := h.ask(http.MethodPost, key, params...)
	switch {
	case a.Err != nil:
		h.count("POST: no answer")
		return
	case !a.Is(http.StatusCreated, "") && !(owned && a.Is(http.StatusOK, "")):
		h.count("POST: " + a.JSON.Code)
		h.pause(20 * time.Millisecond)
		return
	}
	h.count("POST: granted")
	g := &killHold{key: key, fence: a.JSON.Fence, who: h.name, from: a.Got, until: toldUntil(a)}
	h.mu.Lock()
	h.holds = append(h.holds, g)
	h.mu.Unlock()
	h.hold(g, p)
}

func toldUntil(a answer) locker.Instant { return locker.Instant(a.JSON.ValidUntilMS * 1e6) }

// hold keeps a lock for a while, and gives it back.
func (h *habit) hold(g *killHold, from *proc) {
	handle := fmt.Sprint("fencing_token=", g.fence)
	for range h.random.IntN(6) {
		h.pause(300 * time.Millisecond)
		method, params := http.MethodGet, []string{handle}
		if h.random.IntN(4) == 0 {
			method, params = http.MethodPatch, append(params, "ttl="+[]string{"1s", killTTL.String()}[h.random.IntN(2)])
		}
		a, p := h.ask(method, g.key, params...)
		when := method
		if p != from {
			when += " after a restart"
		}
		switch {
		case a.Err != nil && method == http.MethodPatch:
			// The shorter of both leases is what can be counted on.
			g.until = min(g.until, a.Sent.Add(time.Second-locker.DriftMargin(time.Second)))
		case a.Err != nil:
		case a.Is(http.StatusOK, ""):
			h.count(when + ": held")
			if a.JSON.Fence != g.fence {
				h.t.Errorf("%s: %s asks for fence %d and is told %v", g.key, h.name, g.fence, a)
			}
			g.until = toldUntil(a)
		case a.Is(http.StatusGone, "lost"):
			h.count(when + ": lost, " + a.JSON.Cause)
			h.lost(g, a)
			return
		case a.Status == http.StatusServiceUnavailable && method == http.MethodPatch:
			h.count(when + ": " + a.JSON.Code)
			g.until = min(g.until, a.Sent.Add(time.Second-locker.DriftMargin(time.Second)))
		default:
			h.t.Errorf("%s: %s holds it until %v from now; %s: %v", g.key, h.name, g.until.Sub(a.Got), when, a)
			return
		}
	}
	h.giveBack(g, handle)
}

// lost takes in a loss, which must not come before the end that was told.
func (h *habit) lost(g *killHold, a answer) {
	if a.Got < g.until {
		h.t.Errorf("%s: %s was told of fence %d that it is valid for another %v, and now %v", g.key, h.name, g.fence, g.until.Sub(a.Got), a)
	}
}

// giveBack asks until it knows how it went.
func (h *habit) giveBack(g *killHold, handle string) {
	until := g.until
	for first := true; ; first = false {
		a, _ := h.ask(http.MethodDelete, g.key, handle)
		g.until = min(g.until, a.Sent)
		switch {
		case a.Err != nil:
			h.count("DELETE: no answer")
			h.pause(20 * time.Millisecond)
			continue
		case a.Is(http.StatusServiceUnavailable, "release_unconfirmed"):
			h.count("DELETE: unconfirmed")
			continue
		case a.Is(http.StatusNoContent, ""):
			h.count("DELETE: released")
		case a.Is(http.StatusGone, "lost") && a.Got >= until:
			h.count("DELETE: lost")
		case !first && (a.Is(http.StatusNotFound, "not_held") || a.Is(http.StatusConflict, "owner_mismatch")):
			h.count("DELETE again: done before")
		default:
			h.t.Errorf("%s: %s gives back fence %d, valid for another %v: %v", g.key, h.name, g.fence, until.Sub(a.Got), a)
		}
		return
	}
}
