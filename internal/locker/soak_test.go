package locker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

const (
	soakSlots   = 4 // for sidecars
	soakWorkers = 4 // of each sidecar
	soakMaxTTL  = 20 * time.Second
	soakMaxWait = 20 * time.Second

	// faultShare of all calls to the store meet a fault of some kind.
	faultShare = 0.25
	// faultDelay is how long requests and replies travel at most: half of the
	// delayed ones arrive after their caller has given up.
	faultDelay = 2 * storeTimeout
)

var soakKeys = []locker.Key{"cron/report", "leader", "déjà-vu"}

// soak is one long run of sidecars with many workers on few keys, behind a
// store that fails all the time. Sidecars crash and are replaced.
type soak struct {
	*world
	seed    uint64
	wipes   bool
	audit   *fenceAudit
	slots   []*slot
	book    book
	running sync.WaitGroup
	tally   tally
}

func TestSoakNeverTwoValidHolders(t *testing.T) {
	soakFor(t, 12, func(s *soak, length time.Duration) { s.run(length) })
}

// A store that loses its data gives locks away that are held. What still holds
// is that fences rise, and that no lease outlives the loss by renewal.
func TestSoakStoreThatLosesItsData(t *testing.T) {
	soakFor(t, 6, func(s *soak, length time.Duration) {
		s.wipes = true
		s.run(length)
	})
}

// soakFor runs so many virtual hours, a twelfth of it in short mode, or
// LOCKSIDECAR_SOAK_HOURS.
// LOCKSIDECAR_SOAK_SEED repeats the choices of an earlier run; goroutines that
// wake at the same instant may still go in another order.
func soakFor(t *testing.T, hours float64, run func(*soak, time.Duration)) {
	t.Parallel()
	if testing.Short() {
		hours /= 12
	}
	hours, err := strconv.ParseFloat(envOr("LOCKSIDECAR_SOAK_HOURS", fmt.Sprint(hours)), 64)
	if err != nil {
		t.Fatal(err)
	}
	seed := soakSeed(t)
	t.Logf("LOCKSIDECAR_SOAK_SEED=%d", seed)
	inWorld(t, func(w *world) {
		run(&soak{world: w, seed: seed}, time.Duration(hours*float64(time.Hour)))
	})
}

// soakSeed is LOCKSIDECAR_SOAK_SEED, or drawn.
func soakSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(envOr("LOCKSIDECAR_SOAK_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
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
	for i := range uint64(soakSlots) {
		at := &slot{soak: s, name: fmt.Sprintf("pod-%d", i), random: s.random(100 + i)}
		s.slots = append(s.slots, at)
		s.running.Go(func() { at.live(end) })
		for j := range uint64(soakWorkers) {
			wk := &worker{slot: at, name: fmt.Sprintf("%s/worker-%d", at.name, j), random: s.random(1000 + 100*i + j)}
			s.running.Go(func() { wk.live(end) })
		}
	}
	if s.wipes {
		s.running.Go(func() { s.wipe(s.random(1), &back, end) })
	}
	s.running.Wait()
	s.settle()
	s.book.check(s)
	s.report(length)
}

// wipe has the store come back empty now and then, with its clock set back. By
// the first time every sidecar has seen that clock. What was on its way to the
// store dies with it: a claim that was delayed across a loss of data and a step
// back of the clock could have a floor below the last fence.
func (s *soak) wipe(random *rand.Rand, back *skew, end locker.Instant) {
	time.Sleep(5 * time.Minute)
	for s.now() < end {
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Minute))))
		s.audit.setDown(true)
		time.Sleep(2 * storeTimeout)
		s.book.wiped(s.now())
		s.store.Wipe()
		back.add(time.Duration(random.Int64N(int64(10 * time.Second))))
		time.Sleep(time.Millisecond)
		s.audit.setDown(false)
	}
}

// settle ends all faults and checks that nothing is left, anywhere.
func (s *soak) settle() {
	for _, at := range s.slots {
		at.now().faults.SetPlan(nil)
	}
	s.pass(2 * faultDelay)
	for _, at := range s.slots {
		at.now().ReleaseWhere(context.Background(), "", true)
	}
	s.pass(2 * soakMaxTTL)
	orphans := 0
	for _, key := range soakKeys {
		if _, left, taken := s.store.Value(key); taken {
			orphans++
			s.t.Errorf("%q is still taken, for another %v", key, left)
		}
		if left := s.store.LineTTL(key); left != 0 {
			s.t.Errorf("the line for %q is still there, for another %v", key, left)
		}
	}
	figures.Count(figures.Orphans, figures.Virtual, orphans)
	if _, listening := s.audit.counts(); listening != 0 {
		s.t.Errorf("%d still listen", listening)
	}
	s.pass(10 * time.Minute)
	before := s.total().calls
	for _, at := range s.slots {
		c := at.now()
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
	if after := s.total().calls; after != before {
		s.t.Errorf("%d calls to the store though there is nothing to do", after-before)
	}
	for _, at := range s.slots {
		for _, c := range at.lives {
			c.stop()
			c.faults.Close()
			c.noTokens()
		}
	}
	synctest.Wait()
}

// totals is what happened to all sidecars together.
type totals struct{ calls, faults, outages, sidecars, woken, polled int }

func (s *soak) total() (t totals) {
	for _, at := range s.slots {
		for _, c := range at.lives {
			calls, faults := c.faults.Counts()
			t.calls += calls
			t.faults += faults
			t.outages += c.outages
			t.sidecars++
			c.seen.do(func() {
				t.woken += c.seen.woken
				t.polled += c.seen.polled
			})
		}
	}
	return t
}

func (s *soak) report(length time.Duration) {
	total := s.total()
	handed, _ := s.audit.counts()
	s.t.Logf("%v: %d sidecars, %d calls to the store, %d with a fault, %d outages, %d holds swept, %d wipes; %d woken, %d polls, %d handed over; outcomes %v",
		length, total.sidecars, total.calls, total.faults, total.outages, s.book.holds.Holds(), len(s.book.wipes),
		total.woken, total.polled, handed, s.tally.String())
	figures.Count(figures.Sidecars, figures.Virtual, total.sidecars)
	figures.Count(figures.Seconds, figures.Virtual, int(length/time.Second))
	figures.Count(figures.Wiped, figures.Virtual, len(s.book.wipes))
	for _, at := range s.slots {
		for _, c := range at.lives {
			c.faults.Figures(figures.Virtual)
		}
	}
	if s.book.holds.Holds() == 0 || total.faults < total.calls/8 || total.woken == 0 || handed == 0 {
		s.t.Error("the run shows nothing: no holds, no hints, or hardly a fault")
	}
}
