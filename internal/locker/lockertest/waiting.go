package lockertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// crowd is the processes of a case that wait in line. Close it.
type crowd struct {
	Harness
	queue  locker.Queue
	ctx    context.Context
	cancel context.CancelFunc
	ears   sync.WaitGroup
}

// crowd skips the case if the backend keeps no line.
func (h Harness) crowd(t T) *crowd {
	t.Helper()
	c := h.crowdIfAny(t)
	if c.queue == nil {
		c.close()
		need(t, "Queue", false)
	}
	return c
}

// crowdIfAny leaves the queue nil if the backend keeps no line.
func (h Harness) crowdIfAny(t T) *crowd {
	c := &crowd{Harness: h}
	c.queue, _ = h.Backend.(locker.Queue)
	c.ctx, c.cancel = context.WithCancel(t.Context())
	return c
}

func (c *crowd) close() {
	c.cancel()
	c.ears.Wait()
}

// process is one that waits, with as many callers as a case likes.
type process struct {
	*crowd
	name  string
	calls atomic.Int64

	mu    sync.Mutex
	heard []locker.Hint
	more  chan struct{} // has room for one; sent to with every hint
}

// deaf returns a process for which nobody listens.
func (c *crowd) deaf(name string) *process {
	return &process{crowd: c, name: name, more: make(chan struct{}, 1)}
}

// process returns a process that listens.
func (c *crowd) process(t T, name string) *process {
	t.Helper()
	p := c.deaf(name)
	p.listen(t)
	return p
}

func (p *process) listen(t T) {
	t.Helper()
	p.ears.Go(func() { p.queue.Listen(p.ctx, p.name, p.hear) })
	p.await(t, locker.HintListening, 1)
}

func (p *process) hear(h locker.Hint) {
	p.mu.Lock()
	p.heard = append(p.heard, h)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// count returns how often the process has heard a kind of hint.
func (p *process) count(kind locker.HintKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, h := range p.heard {
		if h.Kind == kind {
			n++
		}
	}
	return n
}

// await waits until the process has heard a kind of hint so many times.
func (p *process) await(t T, kind locker.HintKind, times int) {
	t.Helper()
	deadline := time.NewTimer(promptly)
	defer deadline.Stop()
	for p.count(kind) < times {
		select {
		case <-p.more:
		case <-deadline.C:
			t.Fatalf("%s has heard hint %d %d times, want %d", p.name, kind, p.count(kind), times)
		}
	}
}

// wantWoken checks how often the process was woken. What it heard last must be
// known to be over.
func (p *process) wantWoken(t T, times int) {
	t.Helper()
	n := p.count(locker.HintWake)
	if p.votesSlowly() && times > 0 && n > times {
		return
	}
	if n != times {
		t.Errorf("%s was woken %d times, want %d", p.name, n, times)
	}
}

// turn is that of a caller with a number, or without one yet; rest is the
// least number of the process's other callers.
func (p *process) turn(number, rest int64) locker.Turn {
	return locker.Turn{Process: p.name, Number: number, Rest: rest, Call: p.calls.Add(1), WaitLeft: long}
}

// caller waits for a key.
type caller struct {
	*process
	claim  locker.Claim
	number int64
}

// join has a new caller of the process ask for a key that it cannot have yet.
func (p *process) join(t T, key locker.Key) *caller {
	t.Helper()
	return p.joinFor(t, key, long)
}

// joinFor is join for a caller who waits no longer than that.
func (p *process) joinFor(t T, key locker.Key, wait time.Duration) *caller {
	t.Helper()
	turn := p.turn(0, 0)
	turn.WaitLeft = wait
	c := &caller{process: p, claim: p.Harness.claim(key, long)}
	c.number = c.wantStanding(t, turn).Standing.Number
	return c
}

// ask sends the caller's claim once more, as a new attempt.
func (c *caller) ask(t T, turn locker.Turn) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	claim := c.claim
	claim.NotAfter = c.Now().Add(callDeadline)
	return c.queue.AcquireInLine(ctx, claim, turn)
}

// wantStanding asks and checks that the caller is told where it stands.
func (c *caller) wantStanding(t T, turn locker.Turn) *locker.HeldError {
	t.Helper()
	_, err := c.ask(t, turn)
	return c.checkStanding(t, turn, err)
}

func (c *caller) checkStanding(t T, turn locker.Turn, err error) *locker.HeldError {
	t.Helper()
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Standing == nil {
		t.Fatalf("%s asks for %q: %v, want a HeldError with a standing", c.name, c.claim.Key, err)
	}
	s := held.Standing
	if s.Number <= 0 || turn.Number != 0 && s.Number != turn.Number {
		t.Errorf("%s is told number %d, want %d (0: any)", c.name, s.Number, turn.Number)
	}
	if held.Queued != (held.State == locker.OccupancyFree) {
		t.Errorf("%s is told queued: %v and state %q", c.name, held.Queued, held.State)
	}
	if s.Ahead < 0 || held.QueueLength <= s.Ahead {
		t.Errorf("%s is told that %d of %d places are ahead", c.name, s.Ahead, held.QueueLength)
	}
	most := locker.AskEvery + 10*rounding
	if !held.Queued {
		most = locker.AskIn(s.Ahead, held.ExpiresIn) + rounding
	}
	if s.AskIn <= 0 || s.AskIn > most {
		t.Errorf("%s is told to ask again in %v, want at most %v", c.name, s.AskIn, most)
	}
	return held
}

// wantAhead has the caller ask, and checks how many places are before it, of
// how many in all.
func (c *caller) wantAhead(t T, rest int64, ahead, length int) *locker.HeldError {
	t.Helper()
	held := c.wantStanding(t, c.turn(c.number, rest))
	if held.Standing.Ahead != ahead || held.QueueLength != length {
		t.Errorf("%s, number %d, is told that %d of %d places are ahead, want %d of %d",
			c.name, c.number, held.Standing.Ahead, held.QueueLength, ahead, length)
	}
	return held
}

// wantQueued is wantAhead while the key is free.
func (c *caller) wantQueued(t T, rest int64, ahead, length int) locker.Standing {
	t.Helper()
	held := c.wantAhead(t, rest, ahead, length)
	if !held.Queued {
		t.Errorf("%s is told that the key is %s, want that it is free and others are in line", c.name, held.State)
	}
	return *held.Standing
}

// mustGet has the caller ask, and checks that it is granted.
func (c *caller) mustGet(t T, rest int64) locker.Fence {
	t.Helper()
	grant, err := c.ask(t, c.turn(c.number, rest))
	if err != nil {
		t.Fatalf("%s, number %d, asks for %q: %v, want a grant", c.name, c.number, c.claim.Key, err)
	}
	return grant.Fence
}

// mustLeave takes the caller out of line.
func (c *caller) mustLeave(t T, rest int64) {
	t.Helper()
	c.sendLeave(t, c.turn(c.number, rest))
}

func (c *caller) sendLeave(t T, turn locker.Turn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	if err := c.queue.Leave(ctx, c.claim.Key, turn); err != nil {
		t.Fatalf("%s leaves: %v", c.name, err)
	}
}

// handOver surrenders a lock in favour of the caller.
func (c *caller) handOver(t T, s locker.Surrender, turn locker.Turn) (verdict error, grant locker.Grant, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	claim := c.claim
	if claim.NotAfter == 0 {
		t.Fatal("the claim has no NotAfter")
	}
	v, grant, err := c.queue.HandOver(ctx, s, claim, turn)
	return v.Err, grant, err
}

// wantLine checks how many are in line, as a stranger is told.
func (h Harness) wantLine(t T, key locker.Key, length int) {
	t.Helper()
	inspector, ok := h.Backend.(locker.Inspector)
	if !ok {
		return
	}
	o, err := inspector.Inspect(t.Context(), key)
	if err != nil {
		t.Fatalf("inspect %q: %v", key, err)
	}
	if o.QueueLength != length {
		t.Errorf("%d places are in line for %q, want %d", o.QueueLength, key, length)
	}
}

// wantNoOvertaking checks that a claim that does not wait is told that the key
// is free, and that so many are in line for it.
func (h Harness) wantNoOvertaking(t T, key locker.Key, length int) {
	t.Helper()
	_, err := h.acquire(t, h.claim(key, long))
	var held *locker.HeldError
	if !errors.As(err, &held) || !held.Queued || held.State != locker.OccupancyFree || held.Standing != nil {
		t.Fatalf("a claim that does not wait: %v, want that the key is queued for", err)
	}
	if held.QueueLength != length {
		t.Errorf("a claim that does not wait is told of %d in line, want %d", held.QueueLength, length)
	}
}
