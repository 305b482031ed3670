package quorum_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// TestSimulationsNeverHaveTwoValidHolders runs as many short lives of a quorum
// as fit into some seconds, or LOCKSIDECAR_SIM_SEEDS. LOCKSIDECAR_SIM_SEED says
// where to begin; goroutines that wake at the same instant may still go in
// another order.
func TestSimulationsNeverHaveTwoValidHolders(t *testing.T) {
	t.Parallel()
	lives, grants, calls, broken := 0, 0, 0, 0
	for seed := range simSeeds(t, 4) { // in one life of seventy no lock is broken
		synctest.Test(t, func(t *testing.T) {
			s := simulate(t, seed, simGuard)
			violations := s.holds.Violations()
			figures.Count(figures.Violations, figures.VirtualRedlock, len(violations))
			for _, v := range violations {
				t.Errorf("LOCKSIDECAR_SIM_SEED=%d LOCKSIDECAR_SIM_SEEDS=1: %v\n%s", seed, v,
					s.traced.of(v.First.Key, v.First.From.Add(-traceBefore), v.Second.From.Add(time.Second)))
			}
			lives++
			grants += s.grants
			calls += s.calls
			broken += s.broken
		})
	}
	t.Logf("%d lives of %v: %d grants, %d locks broken, %d calls to the nodes", lives, simLife, grants, broken, calls)
	if grants < lives || broken == 0 {
		t.Error("the simulations show nothing: hardly a grant, or no lock was broken")
	}
}

// Without the restart guard, nodes that have forgotten what they granted grant
// it anew: the checker must see that.
func TestWithoutTheRestartGuardSimulationsHaveTwoValidHolders(t *testing.T) {
	t.Parallel()
	lives := 0
	for seed := range simSeeds(t, 100) { // one life in four shows it
		overlaps := 0
		synctest.Test(t, func(t *testing.T) { overlaps = len(simulate(t, seed, 0).holds.Violations()) })
		figures.Count(figures.Allowed, figures.VirtualRedlock, overlaps)
		if lives++; overlaps > 0 {
			t.Logf("seen in life %d", lives)
			return
		}
	}
	t.Errorf("%d lives without a guard, and never two holders", lives)
}

// simSeeds yields the seeds to run: at least so many, unless the environment says
// how many.
func simSeeds(t *testing.T, least uint64) iter.Seq[uint64] {
	number := func(name string, otherwise uint64) uint64 {
		v, ok := os.LookupEnv(name)
		if !ok {
			return otherwise
		}
		i, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	const never = math.MaxUint64
	first, n := number("LOCKSIDECAR_SIM_SEED", rand.Uint64N(1<<40)), number("LOCKSIDECAR_SIM_SEEDS", never)
	return func(yield func(uint64) bool) {
		began := time.Now()
		for i := range n {
			if n == never && i >= least && time.Since(began) > simBudget || !yield(first+i) {
				return
			}
		}
	}
}

// simulate runs one life and returns what was reported.
func simulate(t *testing.T, seed uint64, guard time.Duration) *simulation {
	t.Helper()
	s := &simulation{t: t, seed: seed, start: time.Now(), guard: guard, keys: []locker.Key{"a", "b"}, traced: newTrace()}
	random := s.random(0)
	for range 3 + 2*random.IntN(2) {
		s.nodes = append(s.nodes, s.newNode(time.Duration(random.Int64N(int64(200*time.Millisecond)))))
	}
	end := s.now().Add(simLife)
	var processes []*process
	for i := range 3 {
		stream := uint64(1000 * (i + 1))
		p := s.newProcess(fmt.Sprint("pod-", i), stream)
		processes = append(processes, p)
		s.running.Go(func() { p.disturb(s.random(stream+500), end) })
		for j := range 2 {
			w := &worker{process: p, name: fmt.Sprintf("%s/%d", p.name, j), random: s.random(stream + 600 + uint64(j))}
			s.running.Go(func() { w.work(end) })
		}
	}
	for i, n := range s.nodes {
		s.running.Go(func() { n.suffer(s.random(uint64(100+i)), end) })
	}
	s.running.Go(func() { processes[0].operate(s.random(99), end) })
	s.running.Wait()
	figures.Count(figures.Seconds, figures.VirtualRedlock, int(simLife/time.Second))
	figures.Count(figures.Sidecars, figures.VirtualRedlock, len(processes))
	figures.Count(figures.Grants, figures.VirtualRedlock, s.grants)
	figures.Count(figures.Windows, figures.VirtualRedlock, s.holds.Holds())
	s.settle(processes)
	return s
}

// settle ends all faults and checks that nothing is left anywhere.
func (s *simulation) settle(processes []*process) {
	for _, p := range processes {
		for _, l := range p.links {
			l.SetPlan(nil)
		}
	}
	time.Sleep(simGuard + 3*storeTimeout)
	for _, p := range processes {
		p.ReleaseWhere(context.Background(), "", true)
	}
	time.Sleep(simMaxTTL + 2*time.Second)
	orphans := 0
	for i, n := range s.nodes {
		for _, key := range s.keys {
			if _, left, taken := n.Value(key); taken {
				orphans++
				s.t.Errorf("seed %d: %q is still taken at node %d, for %v", s.seed, key, i, left)
			}
		}
	}
	figures.Count(figures.Orphans, figures.VirtualRedlock, orphans)
	for _, p := range processes {
		if owed, coming := p.quorum.Owed(), p.quorum.Coming(); owed != 0 || coming != 0 {
			s.t.Errorf("seed %d: %s owes %d and expects %d", s.seed, p.name, owed, coming)
		}
		p.end()
	}
}

// suffer has a node stop, lose its data, be slow, and its clock step by less
// than leases allow for.
func (n *simNode) suffer(random *rand.Rand, end locker.Instant) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for n.sim.now() < end {
		time.Sleep(upTo(24 * time.Second))
		switch random.IntN(4) {
		case 0: // started again, and empty
			figures.Count(figures.ServerKilled, figures.VirtualRedlock, 1)
			n.set(func() { n.down = true })
			time.Sleep(upTo(2 * time.Second))
			n.forget()
			n.set(func() { n.down = false })
		case 1: // flushed
			figures.Count(figures.Wiped, figures.VirtualRedlock, 1)
			n.forget()
		case 2:
			figures.Count(figures.ServerFrozen, figures.VirtualRedlock, 1)
			n.set(func() { n.slow = 3 * storeTimeout })
			time.Sleep(upTo(3 * time.Second))
			n.set(func() { n.slow = 0 })
		case 3:
			n.set(func() { n.clock += upTo(6*time.Millisecond) - 3*time.Millisecond })
			time.Sleep(simMaxTTL) // no lease meets two steps
		}
	}
}

// disturb cuts a process off from nodes, each by itself.
func (p *process) disturb(random *rand.Rand, end locker.Instant) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for p.sim.now() < end {
		time.Sleep(upTo(6 * time.Second))
		l := p.links[random.IntN(len(p.links))]
		cut := random.IntN(2) == 0
		l.set(func() { l.cut, l.deaf = cut, !cut })
		if random.IntN(2) == 0 {
			continue // until another time
		}
		time.Sleep(upTo(5 * time.Second))
		l.set(func() { l.cut, l.deaf = false, false })
	}
}

// operate has somebody on call break locks now and then, over the same links.
func (p *process) operate(random *rand.Rand, end locker.Instant) {
	for p.sim.now() < end {
		time.Sleep(time.Duration(random.Int64N(int64(6 * time.Second))))
		ctx, cancel := context.WithTimeout(context.Background(), 2*storeTimeout)
		key := p.sim.keys[random.IntN(len(p.sim.keys))]
		if seen, err := p.quorum.Sight(ctx, key); err == nil && seen.State == locker.OccupancyHeld && seen.Holder != nil {
			left, err := p.quorum.Break(ctx, locker.Breach{Key: key, Token: seen.Token, Holder: seen.Holder.Pod})
			p.sim.trace("break %q %s: %v, %v", key, called(seen.Token), left, err)
			if err == nil {
				p.sim.broken++
			}
		}
		cancel()
	}
}

// worker takes locks, and counts on what it was told.
type worker struct {
	*process
	name   string
	random *rand.Rand
}

func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *worker) work(end locker.Instant) {
	for w.sim.now() < end {
		time.Sleep(w.upTo(300 * time.Millisecond))
		w.turn()
	}
}

// turn takes a lock and works under it for a while.
func (w *worker) turn() {
	r := locker.Request{
		Key: w.sim.keys[w.random.IntN(len(w.sim.keys))], Owner: w.name, Renew: w.random.IntN(4) > 0,
		TTL: time.Second + w.upTo(simMaxTTL-time.Second),
	}
	if w.random.IntN(2) == 0 {
		r.Wait = w.upTo(3 * time.Second)
	}
	st, repeated, err := w.Acquire(w.alive, r)
	if err != nil {
		return
	}
	if !repeated {
		w.sim.mu.Lock()
		w.sim.grants++
		w.sim.mu.Unlock()
	}
	end := w.sim.holds.Begin(r.Key, w.name, st.Fence, w.sim.now())
	until, stop := st.ValidUntil, w.sim.now().Add(w.upTo(6*time.Second))
	for w.sim.now() < min(stop, until) {
		time.Sleep(min(w.upTo(time.Second)+1, until.Sub(w.sim.now())))
		now, err := w.Get(r.Key, locker.Handle{Fence: st.Fence})
		if err != nil {
			break // it was told that it is over
		}
		until = now.ValidUntil
	}
	end(min(w.sim.now(), until))
	_ = w.Release(w.alive, r.Key, locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{})
}
