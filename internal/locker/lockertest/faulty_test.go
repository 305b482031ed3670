package lockertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// faultyHarness is a Faulty in front of a memory backend, both in the bubble
// of the test. Its hands reach the store past the Faulty.
func faultyHarness(t *testing.T, plan Plan) (Harness, *Faulty) {
	store := memoryHarness()
	f := NewFaulty(store.Backend, plan)
	t.Cleanup(f.Close)
	h := store
	h.Backend = f.Backend()
	return h, f
}

func memoryHarness() Harness {
	b := memory.New(memory.Config{Now: BubbleClock})
	return Harness{
		Backend: b,
		Now:     BubbleClock,
		CurrentValue: func(key locker.Key) (string, bool) {
			value, _, ok := b.Value(key)
			return value, ok
		},
		PTTL: func(key locker.Key) time.Duration {
			_, ttl, _ := b.Value(key)
			return ttl
		},
		Put: b.Put, Delete: b.Delete, Wipe: b.Wipe, LineTTL: b.LineTTL,
		bubble: true,
	}
}

// first injects a fault into the first call alone.
func first(fault Fault) Plan {
	return func(c Call) Fault {
		if c.N > 0 {
			return Fault{}
		}
		return fault
	}
}

func has(h Harness, c locker.Claim) bool {
	value, _ := h.CurrentValue(c.Key)
	return value == c.Token.Reveal()
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || locker.CertainNo(err) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

func TestFaultyWithoutFaultsIsTheBackend(t *testing.T) {
	RunInBubble(t, func(t *testing.T) Harness {
		h, _ := faultyHarness(t, nil)
		return h
	})
}

func TestSlowRequestsAndRepliesChangeNoAnswer(t *testing.T) {
	RunInBubble(t, func(t *testing.T) Harness {
		h, _ := faultyHarness(t, func(Call) Fault {
			return Fault{RequestDelay: 3 * time.Microsecond, ReplyDelay: 2 * time.Microsecond}
		})
		return h
	})
}

func TestRefusedCallNeverReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &locker.StoreError{Reason: locker.StoreBusy, Certain: true}
		h, _ := faultyHarness(t, func(Call) Fault { return Fault{Refuse: refusal} })
		c := h.claim("k", long)
		if _, err := h.acquire(t, c); !errors.Is(err, refusal) {
			t.Errorf("acquire: %v", err)
		}
		if err := h.renew(t, h.renewal(c, 0), h.renewal(c, 0))[1]; !errors.Is(err, refusal) {
			t.Errorf("second renewal: %v", err)
		}
		if has(h, c) {
			t.Error("the store has the lock")
		}
	})
}

func TestLostReplyLeavesTheRequestExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := faultyHarness(t, func(c Call) Fault { return Fault{LoseReply: c.N != 1} })
		c := h.claim("k", long)
		_, err := h.acquire(t, c)
		wantUnknown(t, err)
		h.mustAcquire(t, c)
		wantUnknown(t, h.release(t, surrender(c, 0))[0])
		if has(h, c) {
			t.Error("the release was not executed")
		}
	})
}

func TestHeldBackRequestIsExecutedAfterItsCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, first(Fault{RequestDelay: time.Hour}))
		c := h.claim("k", long)
		c.NotAfter = h.Now().Add(2 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := h.Backend.Acquire(ctx, c)
		wantUnknown(t, err)
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("the caller waited %v, want until its deadline", waited)
		}
		if has(h, c) {
			t.Error("executed at once")
		}
		f.Wait()
		if passed := time.Since(start); passed != time.Hour || !has(h, c) {
			t.Errorf("after %v: executed %v", passed, has(h, c))
		}
	})
}

func TestHeldBackRequestIsLateAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, first(Fault{RequestDelay: callDeadline + 1}))
		c := h.claim("k", long)
		_, err := h.acquire(t, c)
		wantUnknown(t, err)
		f.Wait()
		if has(h, c) {
			t.Error("executed after its NotAfter")
		}
	})
}

func TestHeldBackBatchIsAsItWasWhenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, func(c Call) Fault {
			if c.Op == OpRelease {
				return Fault{RequestDelay: time.Second}
			}
			return Fault{}
		})
		c, _ := h.take(t, "k", long)
		batch := []locker.Surrender{surrender(c, 0)}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantUnknown(t, h.Backend.Release(ctx, batch)[0].Err)
		batch[0] = locker.Surrender{}
		f.Wait()
		if has(h, c) {
			t.Error("the release was changed on its way")
		}
	})
}

func TestDuplicateIsExecutedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, first(Fault{Duplicates: 2, DuplicateDelay: time.Second}))
		c := h.claim("k", long)
		start := time.Now()
		h.mustAcquire(t, c)
		if time.Since(start) != 0 {
			t.Errorf("the caller waited %v for the duplicates", time.Since(start))
		}
		h.Wipe() // forgets that the claim was granted
		time.Sleep(time.Second + 1)
		synctest.Wait()
		if !has(h, c) {
			t.Error("not executed again after a second")
		}
		h.Wipe()
		f.Wait()
		if !has(h, c) || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: executed a second time %v", time.Since(start), has(h, c))
		}
	})
}

func TestDelayedReplyKeepsTheCallerNotTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := faultyHarness(t, first(Fault{ReplyDelay: time.Second}))
		c := h.claim("k", long)
		done := make(chan error, 1)
		go func() {
			_, err := h.acquire(t, c)
			done <- err
		}()
		synctest.Wait()
		if !has(h, c) {
			t.Error("not executed at once")
		}
		start := time.Now()
		if err := <-done; err != nil || time.Since(start) != time.Second {
			t.Errorf("answered %v after %v", err, time.Since(start))
		}
	})
}

func TestCloseDropsWhatIsOnItsWayAndLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a bubble fails if a goroutine is left
		h, f := faultyHarness(t, func(Call) Fault { return Fault{RequestDelay: time.Hour} })
		c := h.claim("k", long)
		c.NotAfter = h.Now().Add(2 * time.Hour)
		done := make(chan error, 1)
		go func() {
			_, err := h.Backend.Acquire(t.Context(), c)
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		f.Close()
		f.Close()
		wantUnknown(t, <-done)
		if time.Since(start) != 0 || has(h, c) {
			t.Errorf("closing took %v; executed: %v", time.Since(start), has(h, c))
		}
	})
}

func TestPlanIsToldOfEveryCallAndCanBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []Call
		record := func(c Call) Fault {
			calls = append(calls, c)
			return Fault{LoseReply: c.Op == OpInspect}
		}
		h, f := faultyHarness(t, record)
		c, _ := h.take(t, "a", long)
		h.renew(t, h.renewal(c, 0), h.renewal(h.claim("b", long), 0))
		if _, err := f.Inspect(t.Context(), "a"); err == nil {
			t.Error("inspect was answered")
		}
		if err := f.Annotate(t.Context(), "a", c.Token, "x"); err != nil {
			t.Error(err)
		}
		h.mustRelease(t, c)
		f.SetPlan(nil)
		h.mustBeFree(t, "a")

		want := []Call{
			{0, OpAcquire, []locker.Key{"a"}}, {1, OpRenew, []locker.Key{"a", "b"}}, {2, OpInspect, []locker.Key{"a"}},
			{3, OpAnnotate, []locker.Key{"a"}}, {4, OpRelease, []locker.Key{"a"}},
		}
		if !slices.EqualFunc(calls, want, func(a, b Call) bool {
			return a.N == b.N && a.Op == b.Op && slices.Equal(a.Keys, b.Keys)
		}) {
			t.Errorf("told of %v, want %v", calls, want)
		}
		if total, faults := f.Counts(); total != 7 || faults != 1 {
			t.Errorf("%d calls and %d faults, want 7 and 1", total, faults)
		}
	})
}

func TestABreachWhoseReplyWasLostCanBeAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := faultyHarness(t, nil)
		c, _ := h.take(t, "k", long)
		s, err := f.Sight(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		breach := locker.Breach{Key: "k", Token: s.Token, Holder: s.Holder.Pod}
		f.SetPlan(func(call Call) Fault { return Fault{LoseReply: call.Op == OpBreak} })
		_, err = f.Break(t.Context(), breach)
		wantUnknown(t, err)
		f.SetPlan(nil)
		if left, err := f.Break(t.Context(), breach); err != nil || left != long {
			t.Errorf("again: %v left, error %v", left, err)
		}
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrTaken)
	})
}

// bare hides what a backend can do beside being one.
type bare struct{ locker.Backend }

func TestFaultySupportsWhatItsBackendSupports(t *testing.T) {
	f := NewFaulty(bare{memory.New(memory.Config{})}, nil)
	defer f.Close()
	if _, err := f.Inspect(t.Context(), "k"); !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("inspect: %v", err)
	}
	if err := f.Annotate(t.Context(), "k", locker.NewToken(pod), ""); !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("annotate: %v", err)
	}
	if _, err := f.Sight(t.Context(), "k"); !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("sight: %v", err)
	}
	if _, err := f.Break(t.Context(), locker.Breach{Key: "k"}); !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("break: %v", err)
	}
}

func TestChaosIsRepeatableAndInjectsItsShare(t *testing.T) {
	const calls, share = 10_000, 0.25
	plan, twin, other := Chaos(1, share, time.Second), Chaos(1, share, time.Second), Chaos(2, share, time.Second)
	kinds := make(map[string]int)
	faults, differences := 0, 0
	for i := range calls {
		fault := plan(Call{N: i})
		if fault != twin(Call{N: i}) {
			t.Fatalf("call %d: plans of one seed differ", i)
		}
		if fault != other(Call{N: i}) {
			differences++
		}
		if fault == (Fault{}) {
			continue
		}
		faults++
		kinds[kindOf(fault)]++
		if longest := max(fault.RequestDelay, fault.ReplyDelay, fault.DuplicateDelay); longest > time.Second {
			t.Errorf("a delay of %v", longest)
		}
	}
	if got := float64(faults) / calls; got < share*0.9 || got > share*1.1 {
		t.Errorf("a share of %v met a fault, want %v", got, share)
	}
	if len(kinds) != 7 {
		t.Errorf("kinds of faults: %v, want all seven", kinds)
	}
	if differences == 0 {
		t.Error("plans of different seeds are the same")
	}
}

func kindOf(f Fault) string {
	switch {
	case f.Refuse != nil && locker.CertainNo(f.Refuse):
		return "certain refusal"
	case f.Refuse != nil:
		return "unknown refusal"
	case f.LoseReply && f.RequestDelay > 0:
		return "held back and reply lost"
	case f.LoseReply:
		return "reply lost"
	case f.RequestDelay > 0:
		return "held back"
	case f.ReplyDelay > 0:
		return "reply delayed"
	}
	return "duplicated"
}
