package locker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

const (
	soakSidecars = 4
	soakWorkers  = 4 // of each sidecar
	soakMaxTTL   = 20 * time.Second

	// faultShare of all calls to the store meet a fault of some kind.
	faultShare = 0.25
	// faultDelay is how long requests and replies travel at most: half of the
	// delayed ones arrive after their caller has given up.
	faultDelay = 2 * storeTimeout
)

var soakKeys = []locker.Key{"cron/report", "leader", "déjà-vu"}

// soak is one long run of sidecars with many workers on few keys, behind a
// store that fails all the time.
type soak struct {
	*world
	seed     uint64
	wipes    bool
	audit    *fenceAudit
	sidecars []*soaked
	book     book
	workers  sync.WaitGroup
	tally    tally
}

// soaked is one sidecar of a soak.
type soaked struct {
	*sidecar
	faults *lockertest.Faulty

	mu      sync.Mutex
	outage  outage
	outages int
}

// outage is what befalls all calls of a sidecar for a while.
type outage int

const (
	none outage = iota
	cut         // nothing reaches the store
	deaf        // everything does, and no reply comes back
)

func TestSoakNeverTwoValidHolders(t *testing.T) { soakFor(t, false) }

// A store that loses its data gives locks away that are held. What still holds
// is that fences rise, and that no lease outlives the loss by renewal.
func TestSoakStoreThatLosesItsData(t *testing.T) { soakFor(t, true) }

// soakFor runs half a virtual day, an hour in short mode, or
// LOCKSIDECAR_SOAK_HOURS.
// LOCKSIDECAR_SOAK_SEED repeats the choices of an earlier run; goroutines that
// wake at the same instant may still go in another order.
func soakFor(t *testing.T, wipes bool) {
	t.Parallel()
	length := "12"
	if testing.Short() {
		length = "1"
	}
	hours, err := strconv.ParseFloat(envOr("LOCKSIDECAR_SOAK_HOURS", length), 64)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(envOr("LOCKSIDECAR_SOAK_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("LOCKSIDECAR_SOAK_SEED=%d", seed)
	inWorld(t, func(w *world) {
		s := &soak{world: w, seed: seed, wipes: wipes}
		s.run(time.Duration(hours * float64(time.Hour)))
	})
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// random returns a source of its own for each part of the run.
func (s *soak) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

func (s *soak) run(length time.Duration) {
	var back skew // the store's clock steps back when it loses its data
	s.store = memory.New(memory.Config{Now: s.now, Wall: func() time.Time { return time.Now().Add(-back.get()) }})
	s.audit = newFenceAudit(s.t, s.store)
	end := s.now().Add(length)
	for i := range uint64(soakSidecars) {
		c := &soaked{}
		c.faults = lockertest.NewFaulty(s.audit, c.plan(s.random(100+i), s.seed+i))
		c.sidecar = s.sidecarOn(fmt.Sprintf("pod-%d", i), newWire(s.t, s.now, c.faults), locker.Config{})
		s.sidecars = append(s.sidecars, c)
		s.workers.Go(func() { c.suffer(s.world, s.random(200+i), end) })
		for j := range uint64(soakWorkers) {
			name := fmt.Sprintf("pod-%d/worker-%d", i, j)
			wk := &worker{soak: s, at: c, name: name, random: s.random(1000 + 100*i + j)}
			s.workers.Go(func() { wk.live(end) })
		}
	}
	if s.wipes {
		s.workers.Go(func() { s.wipe(s.random(1), &back, end) })
	}
	s.workers.Wait()
	s.settle()
	s.book.check(s)
	s.report(length)
}

// plan makes a sidecar's calls fail.
func (c *soaked) plan(random *rand.Rand, seed uint64) lockertest.Plan {
	chaos := lockertest.Chaos(seed, faultShare, faultDelay)
	return func(call lockertest.Call) lockertest.Fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch c.outage {
		case cut:
			return lockertest.Fault{Refuse: errBroken}
		case deaf:
			return lockertest.Fault{LoseReply: true, RequestDelay: time.Duration(random.Int64N(int64(faultDelay)))}
		}
		fault := chaos(call)
		if call.Op == lockertest.OpRenew {
			// The bytes twice in a row, as a proxy may send them. That a
			// renewal comes again after later ones have been answered is not
			// something a connection can do.
			fault.DuplicateDelay = 0
		}
		return fault
	}
}

// suffer has an outage begin now and then, long enough to lose leases.
func (c *soaked) suffer(w *world, random *rand.Rand, end locker.Instant) {
	for w.now() < end {
		time.Sleep(time.Duration(random.Int64N(int64(4 * time.Minute))))
		c.set(outage(1 + random.IntN(2)))
		time.Sleep(time.Duration(random.Int64N(int64(soakMaxTTL + 2*time.Second))))
		c.set(none)
	}
}

func (c *soaked) set(o outage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outage = o
	if o != none {
		c.outages++
	}
}

// wipe has the store come back empty now and then, with its clock set back.
func (s *soak) wipe(random *rand.Rand, back *skew, end locker.Instant) {
	for s.now() < end {
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Minute))))
		s.audit.setDown(true)
		time.Sleep(time.Millisecond)
		s.book.wiped(s.now())
		s.store.Wipe()
		back.add(time.Duration(random.Int64N(int64(10 * time.Second))))
		time.Sleep(time.Millisecond)
		s.audit.setDown(false)
	}
}

// settle ends all faults and checks that nothing is left, anywhere.
func (s *soak) settle() {
	for _, c := range s.sidecars {
		c.faults.SetPlan(nil)
	}
	s.pass(2 * faultDelay)
	for _, c := range s.sidecars {
		c.ReleaseWhere(context.Background(), "", true)
	}
	s.pass(2 * soakMaxTTL)
	for _, key := range soakKeys {
		if _, left, taken := s.store.Value(key); taken {
			s.t.Errorf("%q is still taken, for another %v", key, left)
		}
	}
	s.pass(10 * time.Minute)
	before := s.calls()
	for _, c := range s.sidecars {
		if n := c.Residue(); n != 0 {
			s.t.Errorf("%d things are left in the table", n)
		}
		if endings, slots := c.Remembered(); endings != 0 || slots != 0 {
			s.t.Errorf("%d endings are remembered, in %d slots", endings, slots)
		}
		if entries, stats := c.List(), c.Stats(); len(entries) != 0 || stats != (locker.Stats{}) {
			s.t.Errorf("still listed: %v, %+v", entries, stats)
		}
	}
	s.pass(time.Hour)
	if after := s.calls(); after != before {
		s.t.Errorf("%d calls to the store though there is nothing to do", after-before)
	}
	for _, c := range s.sidecars {
		c.stop()
		c.faults.Close()
		if strings.Contains(c.log.String(), "ls1/") {
			s.t.Error("a token is in the log")
		}
	}
	synctest.Wait()
}

func (s *soak) calls() (calls int) {
	for _, c := range s.sidecars {
		n, _ := c.faults.Counts()
		calls += n
	}
	return calls
}

func (s *soak) report(length time.Duration) {
	calls, faults, outages := 0, 0, 0
	for _, c := range s.sidecars {
		n, f := c.faults.Counts()
		calls, faults, outages = calls+n, faults+f, outages+c.outages
	}
	s.t.Logf("%v: %d calls to the store, %d with a fault, %d outages, %d holds swept, %d wipes; outcomes %v",
		length, calls, faults, outages, s.book.holds.Holds(), len(s.book.wipes), s.tally.String())
	if s.book.holds.Holds() == 0 || faults < calls/8 {
		s.t.Error("the run shows nothing: no holds, or hardly a fault")
	}
}
