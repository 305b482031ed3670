package locker_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// slot is where one sidecar after the other runs.
type slot struct {
	*soak
	name   string
	random *rand.Rand

	mu    sync.Mutex
	lives []*soaked
	empty bool // the last one has ended
}

// soaked is one sidecar of a soak: a process, which ends.
type soaked struct {
	*sidecar
	world  *world
	faults *lockertest.Faulty
	wire   *wire
	alive  context.Context // over once the process has ended
	die    context.CancelFunc

	mu      sync.Mutex
	outage  outage
	outages int
	refuses locker.Instant     // new locks since then; 0 for not yet
	ending  locker.Instant     // when its shutdown began; 0 for not yet
	mode    locker.ReleaseMode // of the shutdown
	dead    locker.Instant     // when the process ended; 0 for not yet
}

// outage is what befalls all calls of a sidecar for a while.
type outage int

const (
	none outage = iota
	cut         // nothing reaches the store
	deaf        // everything does, and no reply comes back
)

// live runs sidecars; the last one is alive at the end. Where the store loses
// its data it runs only one: a new one would not know which fences there were.
func (s *slot) live(end locker.Instant) {
	for {
		for _, c := range s.lives {
			c.bury()
		}
		c := s.begin()
		until := end
		if !s.wipes {
			until = min(until, s.soak.now().Add(s.upTo(20*time.Minute)))
		}
		c.suffer(s.random, until)
		if s.soak.now() >= end {
			return
		}
		switch {
		case s.random.IntN(2) == 0:
			s.tally.add("crash")
			figures.Count(figures.SidecarKilled, figures.Virtual, 1)
			c.crash()
		default:
			if s.random.IntN(3) == 0 {
				s.tally.add("drain")
				c.drain()
				time.Sleep(s.upTo(10 * time.Second))
			}
			mode := []locker.ReleaseMode{locker.ModeDrop, locker.ModeGuarded, locker.ModeRelease}[s.random.IntN(3)]
			s.tally.add("shutdown " + string(mode))
			figures.Count(figures.SidecarEnded, figures.Virtual, 1)
			c.terminate(mode)
		}
		s.set(func() { s.empty = true })
		time.Sleep(s.upTo(3 * time.Second))
	}
}

func (s *slot) upTo(most time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(most)))
}

func (s *slot) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *slot) begin() *soaked {
	c := &soaked{world: s.world}
	c.alive, c.die = context.WithCancel(context.Background())
	c.faults = lockertest.NewFaulty(s.audit, c.plan(s.random.Uint64()))
	c.wire = newWire(s.t, s.world.now, c.faults)
	c.sidecar = s.sidecarOn(s.name, c.wire, locker.Config{})
	s.set(func() { s.lives, s.empty = append(s.lives, c), false })
	return c
}

// now returns the sidecar that runs; nil if there is none.
func (s *slot) now() *soaked {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty || len(s.lives) == 0 {
		return nil
	}
	return s.lives[len(s.lives)-1]
}

// plan makes a sidecar's calls fail.
func (c *soaked) plan(seed uint64) lockertest.Plan {
	chaos := lockertest.Chaos(seed, faultShare, faultDelay)
	random := rand.New(rand.NewPCG(seed, 1))
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

// suffer has an outage begin now and then, long enough to lose leases, and
// cuts off who listens.
func (c *soaked) suffer(random *rand.Rand, end locker.Instant) {
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	for c.world.now() < end {
		time.Sleep(min(upTo(4*time.Minute), end.Sub(c.world.now())))
		if random.IntN(2) == 0 {
			c.faults.CutListeners(upTo(10 * time.Second))
		}
		if random.IntN(3) == 0 {
			continue
		}
		c.set(func() {
			c.outage = outage(1 + random.IntN(2))
			c.outages++
		})
		time.Sleep(min(upTo(soakMaxTTL+2*time.Second), max(0, end.Sub(c.world.now()))))
		c.set(func() { c.outage = none })
	}
}

func (c *soaked) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// crash stops the process dead. What is on its way is executed all the same.
func (c *soaked) crash() {
	c.set(func() { c.dead, c.outage = c.world.now(), cut })
	c.die()
	c.stop()
}

func (c *soaked) drain() {
	c.set(func() { c.refuses = c.world.now() })
	c.Drain()
}

// terminate ends the process as SIGTERM does.
func (c *soaked) terminate(mode locker.ReleaseMode) {
	began := c.world.now()
	c.set(func() {
		c.ending, c.mode = began, mode
		if c.refuses == 0 {
			c.refuses = began
		}
	})
	c.shutDown(mode)
	if took := c.world.now().Sub(began); took > bound {
		c.t.Errorf("a shutdown (%s) took %v", mode, took)
	}
	if n := c.Stats().Waiting; n != 0 {
		c.t.Errorf("%d wait after a shutdown (%s)", n, mode)
	}
	c.crash()
}

// bury gives up the memory of a process that has been dead for so long that
// nothing of it is on its way any more.
func (c *soaked) bury() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == 0 || c.dead.Add(time.Minute) > c.world.now() {
		return
	}
	c.noTokens()
	c.log.reset()
	c.wire.forget()
}

// noTokens fails the test if a token is in the log.
func (c *soaked) noTokens() {
	if strings.Contains(c.log.String(), "ls1/") {
		c.t.Error("a token is in the log")
	}
}

// isDead tells whether the process has ended.
func (c *soaked) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead != 0
}

// letGo tells since when a worker must count on nothing, since a shutdown may
// drop its lock: it has ended before, as far as the sidecar knows. 0 means that
// it may go on.
func (c *soaked) letGo(cleared bool) locker.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == locker.ModeDrop || c.mode == locker.ModeGuarded && cleared {
		return c.ending
	}
	return 0
}

// mustAnswer is when a request that was made at began must have been answered
// at the latest, if its caller stays until then.
func (c *soaked) mustAnswer(began, stays locker.Instant) locker.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range []locker.Instant{c.refuses, c.dead} {
		if end != 0 {
			stays = min(stays, end)
		}
	}
	return max(began, stays).Add(storeTimeout)
}
