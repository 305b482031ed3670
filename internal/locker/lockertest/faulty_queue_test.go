package lockertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// inFaultyCrowd runs a test in a bubble, with processes in front of a Faulty.
func inFaultyCrowd(t *testing.T, test func(t *testing.T, crowd *crowd, f *Faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, nil)
		crowd := h.crowd(t)
		defer crowd.close()
		test(t, crowd, f)
	})
}

// onHints injects a fault into hints alone.
func onHints(fault Fault) Plan { return on(OpHint, fault) }

func on(op Op, fault Fault) Plan {
	return func(c Call) Fault {
		if c.Op != op {
			return Fault{}
		}
		return fault
	}
}

func TestFaultyIsAQueueIfItsBackendIs(t *testing.T) {
	if _, ok := NewFaulty(memory.New(memory.Config{}), nil).Backend().(locker.Queue); !ok {
		t.Error("with a queue behind it: none")
	}
	if _, ok := NewFaulty(bare{memory.New(memory.Config{})}, nil).Backend().(locker.Queue); ok {
		t.Error("without a queue behind it: one")
	}
	var f locker.Backend = NewFaulty(memory.New(memory.Config{}), nil)
	if _, ok := f.(locker.Queue); ok {
		t.Error("without asking for the backend: a queue")
	}
}

func TestFaultsOfTheLineAreThoseOfItsCalls(t *testing.T) {
	inFaultyCrowd(t, func(t *testing.T, crowd *crowd, f *Faulty) {
		holder, _ := crowd.take(t, "k", long)
		p := crowd.process(t, "p")

		f.SetPlan(on(OpAcquireInLine, Fault{LoseReply: true}))
		c := &caller{process: p, claim: crowd.Harness.claim("k", long)}
		_, err := c.ask(t, p.turn(0, 0))
		wantUnknown(t, err)
		crowd.wantLine(t, "k", 1) // it was executed

		f.SetPlan(on(OpLeave, Fault{RequestDelay: time.Second}))
		go func() { _ = crowd.queue.Leave(t.Context(), "k", p.turn(0, 0)) }() // held back, and executed
		synctest.Wait()
		crowd.wantLine(t, "k", 1)
		time.Sleep(time.Second + 1)
		synctest.Wait()
		crowd.wantLine(t, "k", 0)

		f.SetPlan(on(OpHandOver, Fault{LoseReply: true}))
		verdict, _, err := c.handOver(t, surrender(holder, 0), p.turn(0, 0))
		wantUnknown(t, verdict)
		wantUnknown(t, err)
		if !has(crowd.Harness, c.claim) {
			t.Error("the hand-over was not executed")
		}
	})
}

func TestLostHintIsNotHeard(t *testing.T) {
	inFaultyCrowd(t, func(t *testing.T, crowd *crowd, f *Faulty) {
		holder, _ := crowd.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		f.SetPlan(onHints(Fault{LoseReply: true}))
		crowd.mustRelease(t, holder)
		time.Sleep(time.Minute)
		c.wantWoken(t, 0)
	})
}

func TestDelayedHintIsHeardLaterAndADuplicateAgain(t *testing.T) {
	inFaultyCrowd(t, func(t *testing.T, crowd *crowd, f *Faulty) {
		holder, _ := crowd.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		f.SetPlan(onHints(Fault{RequestDelay: time.Second, Duplicates: 2, DuplicateDelay: time.Second}))
		crowd.mustRelease(t, holder)
		for heard := range 4 {
			synctest.Wait()
			c.wantWoken(t, heard)
			time.Sleep(time.Second + 1)
		}
		synctest.Wait()
		c.wantWoken(t, 3)
	})
}

func TestListenerThatIsCutOffHearsNothingUntilItIsBack(t *testing.T) {
	inFaultyCrowd(t, func(t *testing.T, crowd *crowd, f *Faulty) {
		holder, _ := crowd.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		f.CutListeners(time.Second)
		synctest.Wait()
		crowd.mustRelease(t, holder)
		synctest.Wait()
		c.wantWoken(t, 0)
		crowd.mustBeFree(t, "k") // nobody listened for the place
		time.Sleep(time.Second)
		c.await(t, locker.HintListening, 2)

		holder, _ = crowd.take(t, "k", long)
		c.wantStanding(t, c.turn(c.number, 0))
		crowd.mustRelease(t, holder)
		c.await(t, locker.HintWake, 1)
	})
}

func TestNoHintIsHeardAfterListenHasReturned(t *testing.T) {
	inFaultyCrowd(t, func(t *testing.T, crowd *crowd, f *Faulty) {
		holder, _ := crowd.take(t, "k", long)
		c := crowd.process(t, "p").join(t, "k")
		f.SetPlan(onHints(Fault{ReplyDelay: time.Second}))
		crowd.mustRelease(t, holder)
		synctest.Wait()
		crowd.close()
		heard := slices.Clone(c.heard)
		time.Sleep(time.Minute)
		if !slices.Equal(c.heard, heard) || c.count(locker.HintWake) != 0 {
			t.Errorf("heard %v", c.heard)
		}
	})
}
