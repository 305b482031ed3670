package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

const (
	histories   = 40
	historySize = 200 // requests: of longer ones the check tells less
)

// What callers are told is what one lock would tell them, one after the other:
// also who is refused. LOCKSIDECAR_SOAK_SEED repeats the choices of a run that failed.
func TestAnswersAreThoseOfOneLock(t *testing.T) {
	t.Parallel()
	undecided, granted := 0, 0
	for i := range uint64(histories) {
		seed := soakSeed(t) + i
		var c *contest
		inWorld(t, func(w *world) { c = w.contest(seed, false) })
		figures.Count(figures.Linearized, figures.Virtual, 1)
		yes, decided := c.history.Linearizable(patience) // not in the bubble, where no time passes meanwhile
		if !decided {
			undecided++
		}
		granted += c.history.Granted()
		switch {
		case decided && !yes:
			t.Fatalf("LOCKSIDECAR_SOAK_SEED=%d: no lock gives these answers", seed)
		case undecided > histories/10:
			t.Fatalf("%d of %d histories were not decided", undecided, i+1)
		}
	}
	if granted < 15*histories {
		t.Errorf("only %d were granted the lock: this shows little", granted)
	}
	figures.Count(figures.Undecided, figures.Virtual, undecided)
}

// One caller that is told to have the lock while another has it, and gives it back
// at once, is enough to be seen.
func TestOneGrantTooManyIsSeen(t *testing.T) {
	t.Parallel()
	tried, seen := 0, 0
	for i := range uint64(histories) {
		var c *contest
		inWorld(t, func(w *world) { c = w.contest(soakSeed(t)+i, true) })
		if !c.lied {
			continue
		}
		tried++
		if yes, decided := c.history.Linearizable(patience); decided && !yes {
			seen++
		}
	}
	t.Logf("%d of %d seen", seen, tried)
	figures.Count(figures.Lies, figures.Virtual, tried)
	figures.Count(figures.LiesSeen, figures.Virtual, seen)
	if tried < histories/2 || seen < tried*9/10 {
		t.Errorf("of %d grants too many %d were seen", tried, seen)
	}
}

// patience is what a check of a history may take; most take milliseconds.
const patience = 10 * time.Second

// contest is callers of three sidecars that ask for one lock and give it back.
type contest struct {
	w       *world
	history lockertest.History

	mu      sync.Mutex
	last    locker.Fence // that was granted
	holders int          // who have been told so, and have not begun to give it back
	lie     bool         // one that is refused is to be told the contrary
	lied    bool
}

// contest runs one, behind faults. No request is executed twice: what becomes of
// those is told in docs/guarantees.md.
func (w *world) contest(seed uint64, lie bool) *contest {
	c := &contest{w: w, lie: lie}
	var pods []*sidecar
	for i := range uint64(3) {
		chaos := lockertest.Chaos(seed+i, 0.05, storeTimeout/2)
		faulty := lockertest.NewFaulty(w.store, func(call lockertest.Call) lockertest.Fault {
			fault := chaos(call)
			fault.Duplicates = 0
			return fault
		})
		w.t.Cleanup(faulty.Close)
		pods = append(pods, w.sidecarOn(fmt.Sprintf("pod-%d", i), faulty, locker.Config{}))
	}
	var callers sync.WaitGroup
	for i := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 10+i))
		callers.Go(func() {
			for c.history.Len() < historySize {
				c.turn(pods[i%3], fmt.Sprint("caller-", i), random)
			}
		})
	}
	callers.Wait()
	for _, p := range pods {
		p.stop()
	}
	return c
}

// turn is one caller's: it asks for the lock and, if it gets it, gives it back.
func (c *contest) turn(pod *sidecar, owner string, random *rand.Rand) {
	time.Sleep(time.Duration(random.Int64N(int64(40 * time.Millisecond))))
	number, told := c.history.Ask(c.w.now())
	st, _, err := pod.Acquire(context.Background(), locker.Request{Key: "k", TTL: time.Hour, Owner: owner})
	if fence, lie := c.takes(err, st.Fence); lie {
		told(c.w.now(), lockertest.Done, fence)
		c.history.GiveBack(number, c.w.now())(c.w.now(), lockertest.Done)
		return
	}
	told(c.w.now(), outcomeOf(err), st.Fence)
	if err != nil {
		return
	}
	time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
	c.gives()
	released := c.history.GiveBack(number, c.w.now())
	err = pod.Release(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.ReleaseOptions{})
	released(c.w.now(), outcomeOf(err))
}

// takes takes in an answer. If it is to be told as a grant though it is none, the
// fencing token is that of the lie.
func (c *contest) takes(err error, granted locker.Fence) (fence locker.Fence, lie bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.last = max(c.last, granted)
		c.holders++
	case c.lie && !c.lied && c.holders > 0 && c.history.Len() > historySize/2 && outcomeOf(err) == lockertest.Refused:
		c.lied = true
		return c.last + 1, true
	}
	return granted, false
}

// gives takes in that a holder is about to give the lock back.
func (c *contest) gives() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
}

func outcomeOf(err error) lockertest.Outcome {
	var held *locker.HeldError
	var lost *locker.LostError
	switch {
	case err == nil:
		return lockertest.Done
	case errors.As(err, &held), errors.As(err, &lost), errors.Is(err, locker.ErrNotHeld):
		return lockertest.Refused
	case locker.CertainNo(err):
		return lockertest.NothingDone
	}
	return lockertest.Unknown
}
