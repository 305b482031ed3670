package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

// journaled starts a sidecar that keeps a journal.
func (w *world) journaled(name string, book *notebook) *sidecar {
	return w.sidecarOn(name, w.store, locker.Config{Journal: book})
}

// kill ends a sidecar that keeps a journal, and returns what it leaves behind.
func (s *sidecar) kill() *notebook {
	s.t.Helper()
	book := s.journal.(*notebook).next()
	s.stop()
	return book
}

// hold takes a lock and has the answer arrive.
func (s *sidecar) hold(r locker.Request) locker.Status {
	s.t.Helper()
	st := s.take(r)
	s.Delivered(st.ID)
	s.Cleared(st.ID)
	return st
}

func (s *sidecar) mustBeLost(key locker.Key, h locker.Handle, cause locker.Cause) {
	s.t.Helper()
	var lost *locker.LostError
	if _, err := s.Get(key, h); !errors.As(err, &lost) || lost.Cause != cause {
		s.t.Errorf("GET of %q: %v, want lost: %s", key, err, cause)
	}
	if err := s.Release(context.Background(), key, h, locker.ReleaseOptions{}); !errors.As(err, &lost) || lost.Cause != cause {
		s.t.Errorf("DELETE of %q: %v, want lost: %s", key, err, cause)
	}
}

func TestADeliveredLeaseGoesOnAtRiskUntilItWasExtendedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		r := want("k", 3*time.Second)
		r.Owner, r.Note, r.MaxHold, r.MinHold = "w1", "nightly", time.Minute, 2*time.Second
		first := w.journaled("old-name", newNotebook())
		granted := first.hold(r)
		w.pass(2500 * time.Millisecond)
		before := first.mustHold("k")
		book := first.kill()

		g := &gate{Backend: w.store, renew: hangRenew}
		next := w.sidecarOn("new-name", g, locker.Config{Journal: book})
		if want := (locker.Restored{TakenUp: 1}); next.restored != want {
			t.Errorf("restored %+v, want %+v", next.restored, want)
		}
		check := func(state locker.HeldState) locker.Status {
			t.Helper()
			st, err := next.Get("k", locker.Handle{Fence: granted.Fence, Owner: "w1"})
			if err != nil {
				t.Fatal(err)
			}
			if st.State != state || st.Note != "nightly" || st.TTL != 3*time.Second || !st.Renew || st.MaxHold != time.Minute ||
				st.MinHold != 2*time.Second || !st.AcquiredAt.Equal(granted.AcquiredAt) || st.HeldFor != w.now().Sub(granted.ValidUntil.Add(-granted.ValidFor)) ||
				st.Renewals < before.Renewals {
				t.Errorf("got %+v, want it as it was before: %+v", st, before)
			}
			return st
		}
		if st := check(locker.StateAtRisk); st.ValidUntil != before.ValidUntil {
			t.Errorf("valid until %d, want %d", st.ValidUntil, before.ValidUntil)
		}
		w.pass(storeTimeout)
		check(locker.StateAtRisk)
		g.set(func(g *gate) { g.renew = nil })
		w.pass(storeTimeout)
		if st := check(locker.StateHeld); st.Renewals <= before.Renewals || st.ValidUntil <= before.ValidUntil {
			t.Errorf("it was not extended: %+v", st)
		}
		// The token has the old name in it and is ours all the same.
		w.pass(10 * time.Second)
		check(locker.StateHeld)
		if err := next.release("k"); !errors.Is(err, locker.ErrOwnerMismatch) {
			t.Errorf("DELETE without a handle: %v", err)
		}
		if err := next.tryRelease("k", granted.Fence); err != nil {
			t.Fatal(err)
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is taken after its release")
		}
	})
}

// The first answer is right although nothing of the new process has run yet.
func TestTheTableIsRightBeforeAnythingElseRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		short, long := s.hold(want("short", time.Second)), s.hold(want("long", time.Minute))
		w.pass(100 * time.Millisecond)
		book := s.kill()
		w.pass(2 * time.Second)
		l, err := locker.New(locker.Config{Holder: "a", StoreTimeout: storeTimeout, Now: w.now, Journal: book}, w.store, renewer.New(w.now))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Restore(book.saved()); err != nil {
			t.Fatal(err)
		}
		next := &sidecar{Locker: l, t: t}
		if st := next.mustHold("long"); st.Fence != long.Fence || st.State != locker.StateAtRisk {
			t.Errorf("got %+v", st)
		}
		var lost *locker.LostError
		if _, err := next.Get("short", locker.Handle{Fence: short.Fence}); !errors.As(err, &lost) || lost.Fence != short.Fence {
			t.Errorf("got %v, want lost", err)
		}
	})
}

func TestALeaseThatEndedMeanwhileIsToldAsLostToItsOwner(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		byFence := s.hold(want("by fence", 2*time.Second))
		s.hold(owned("by owner", "w1"))
		capped := want("capped", 2*time.Second)
		capped.MaxHold = time.Second
		held := s.hold(capped)
		w.pass(100 * time.Millisecond)
		book := s.kill()
		w.pass(time.Minute)
		for range 2 { // it is remembered across another crash as well
			s = w.journaled("a", book)
			if want := (locker.Restored{Lost: 3}); s.restored != want {
				t.Errorf("restored %+v, want %+v", s.restored, want)
			}
			w.pass(time.Second)
			book = s.kill()
		}
		s = w.journaled("a", book)
		s.mustBeLost("by fence", locker.Handle{Fence: byFence.Fence}, locker.CauseExpired)
		s.mustBeLost("by owner", locker.Handle{Owner: "w1"}, locker.CauseExpired)
		s.mustBeLost("capped", locker.Handle{Fence: held.Fence}, locker.CauseMaxHold)
		// Each was told of its loss by the DELETE, which clears it.
		if _, err := s.Get("by fence", locker.Handle{Fence: byFence.Fence}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
		w.pass(time.Second)
		if left := s.journal.(*notebook).phases(); len(left) != 0 {
			t.Errorf("left in the journal: %v", left)
		}
	})
}

func TestLossesAreForgottenInTimeWhateverWasRestarted(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		st := s.hold(want("k", time.Second))
		book := s.kill()
		w.pass(2 * time.Second)
		for range 30 {
			s = w.journaled("a", book)
			w.pass(time.Minute)
			book = s.kill()
		}
		s = w.journaled("a", book)
		w.pass(time.Second)
		if _, err := s.Get("k", locker.Handle{Fence: st.Fence}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("half an hour later: %v", err)
		}
		if left := s.journal.(*notebook).phases(); len(left) != 0 {
			t.Errorf("left in the journal: %v", left)
		}
	})
}

// On another boot instants mean nothing, and damaged records may be old.
func TestDoubtfulRecordsAreUsedToGiveBackAndToTellOfALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		st := s.hold(want("k", time.Minute))
		withMin := want("min", time.Minute)
		withMin.MinHold = time.Minute
		s.hold(withMin)
		book := s.kill()
		book.doubtful = true
		w.pass(10 * time.Second)
		next := w.journaled("a", book)
		w.pass(storeTimeout)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
		if _, left, _ := w.store.Value("min"); left < 49*time.Second || left > 50*time.Second {
			t.Errorf("the minimum hold ends in %v", left)
		}
		next.mustBeLost("k", locker.Handle{Fence: st.Fence}, locker.CauseExpired)
	})
}

func TestWhatNobodyWasToldOfIsGivenBackAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			_, _ = w.store.Acquire(ctx, c)
			return locker.Grant{}, hang(ctx)
		}
		s := w.sidecarOn("a", g, locker.Config{Journal: newNotebook()})
		go func() { _ = s.tryTake(want("k", time.Minute)) }()
		w.pass(100 * time.Millisecond)
		if _, _, taken := w.store.Value("k"); !taken {
			t.Fatal("the store has not granted it")
		}
		next := w.journaled("a", s.kill())
		w.pass(time.Millisecond)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
		if _, err := next.Get("k", locker.Handle{}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
		w.pass(2 * storeTimeout)
	})
}

// It is not known whether the answer was read, so its reader may count on it;
// but without anybody who knows of it, it must not be extended for ever.
func TestWhatMayHaveBeenToldStaysTakenAndIsExtendedOnceSomebodyAsks(t *testing.T) {
	for name, ask := range map[string]func(*sidecar, locker.Status) error{
		"nobody": nil,
		"GET by fence": func(s *sidecar, st locker.Status) error {
			_, err := s.Get("k", locker.Handle{Fence: st.Fence})
			return err
		},
		"GET": func(s *sidecar, _ locker.Status) error {
			_, err := s.Get("k", locker.Handle{})
			return err
		},
		"POST": func(s *sidecar, st locker.Status) error {
			_, repeated, err := s.Acquire(context.Background(), owned("k", "w1"))
			if err == nil && !repeated {
				return errors.New("granted anew")
			}
			return err
		},
		"PATCH": func(s *sidecar, st locker.Status) error {
			note := "still here"
			_, err := s.Extend(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.Changes{Note: &note})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.journaled("a", newNotebook())
				st := s.take(owned("k", "w1"))
				w.pass(100 * time.Millisecond)
				next := w.journaled("a", s.kill())
				if want := (locker.Restored{Doubted: 1}); next.restored != want {
					t.Errorf("restored %+v, want %+v", next.restored, want)
				}
				w.pass(st.ValidFor / 2)
				next.List() // knows no handle, so it proves nothing
				rival := w.sidecar("b")
				if err := rival.tryTake(want("k", time.Second)); !errors.As(err, new(*locker.HeldError)) {
					t.Errorf("a rival before the end: %v", err)
				}
				if ask == nil {
					w.pass(st.ValidUntil.Sub(w.now()) + storeTimeout)
					rival.take(want("k", time.Second))
					return
				}
				if err := ask(next, st); err != nil {
					t.Fatal(err)
				}
				w.pass(20 * time.Second)
				next.mustHold("k")
				again := w.journaled("a", next.kill())
				if want := (locker.Restored{TakenUp: 1}); again.restored != want {
					t.Errorf("restored %+v after the next crash, want %+v", again.restored, want)
				}
				if err := again.tryRelease("k", st.Fence); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAReleaseGoesOnInTheNextProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{Journal: newNotebook()})
		st := s.hold(want("k", time.Minute))
		g.set(func(g *gate) { g.release = hangRelease })
		if err := s.release("k"); !errors.As(err, new(*locker.UnconfirmedError)) {
			t.Fatalf("got %v", err)
		}
		next := w.journaled("a", s.kill())
		if want := (locker.Restored{Releasing: 1}); next.restored != want {
			t.Errorf("restored %+v, want %+v", next.restored, want)
		}
		if _, err := next.Get("k", locker.Handle{Fence: st.Fence}); !errors.Is(err, locker.ErrNotHeld) {
			t.Errorf("GET: %v", err)
		}
		if err := next.tryRelease("k", st.Fence); err != nil {
			t.Errorf("the DELETE again: %v", err)
		}
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
		w.pass(time.Second)
		if left := next.journal.(*notebook).phases(); len(left) != 0 {
			t.Errorf("left in the journal: %v", left)
		}
	})
}

func TestABoundLockEndsWithTheProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		r := want("k", time.Minute)
		r.Bound = true
		st := s.take(r)
		s.Delivered(st.ID)
		next := w.journaled("a", s.kill())
		w.pass(time.Millisecond)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the key is still taken")
		}
		next.mustBeLost("k", locker.Handle{Fence: st.Fence}, locker.CauseShutdown)
	})
}

func TestALossThatAnEarlierProcessHasGivenBackKeepsNobodyOut(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		st := s.take(binding("k", time.Minute))
		s.Delivered(st.ID)
		watch, err := s.Watch("k", locker.Handle{Fence: st.Fence})
		if err != nil {
			t.Fatal(err)
		}
		var heard sync.WaitGroup
		heard.Go(func() {
			for {
				if _, err := watch.Next(context.Background()); err != nil {
					return
				}
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx, locker.ModeDrop, 0)
		heard.Wait()
		next := w.journaled("a", s.kill())
		if err := next.tryTake(want("k", time.Second)); err != nil {
			t.Errorf("the key is free, and a POST got %v", err)
		}
		next.mustBeLost("k", locker.Handle{Fence: st.Fence}, locker.CauseShutdown)
	})
}

// A record that is made while an extension is written down must not say less.
func TestTheJournalNeverKnowsAnEarlierEndThanWasTold(t *testing.T) {
	inWorld(t, func(w *world) {
		book := newNotebook()
		s := w.journaled("a", book)
		r := want("k", 9*time.Second)
		r.Owner = "w1"
		st := s.take(r)
		asked := false
		book.set(func() {
			book.step = func(done bool, records []locker.Record) {
				for _, record := range records {
					if done && !asked && record.ValidUntil > st.ValidUntil {
						asked = true
						s.take(r) // proves that somebody knows of it, which is noted
					}
				}
			}
		})
		w.pass(4 * time.Second)
		told := s.mustHold("k").ValidUntil
		if !asked || told <= st.ValidUntil {
			t.Fatal("it was not renewed")
		}
		for _, record := range book.saved().Records {
			if record.ValidUntil < told {
				t.Errorf("the journal says until %v, and the holder was told %v", record.ValidUntil, told)
			}
		}
	})
}

// The floor of fences is restored: it rises above those of before though the
// store has lost its data and its clock has stepped back.
func TestFencesRiseAcrossARestartAndALossOfData(t *testing.T) {
	for name, age := range map[string]time.Duration{"of the process's own grant": 0, "of the store's clock": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var back skew
				w.store = memory.New(memory.Config{Now: w.now, Wall: func() time.Time { return time.Now().Add(-back.get()) }})
				s := w.journaled("a", newNotebook())
				before := s.hold(want("k", time.Minute))
				w.pass(age)
				if age > 0 {
					before = w.sidecar("b").take(want("other", time.Minute))
				}
				book := s.kill()
				w.store.Wipe()
				back.add(10 * time.Minute)
				next := w.journaled("a", book)
				key := before.Key
				w.pass(time.Second)
				if after := next.take(want(key, time.Minute)); after.Fence <= before.Fence {
					t.Errorf("fence %d after %d", after.Fence, before.Fence)
				}
			})
		})
	}
}

func TestAStoreThatIsAwayAtTheRestartLosesWhatCouldNotBeExtended(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		st := s.hold(want("k", 3*time.Second))
		g := &gate{Backend: w.store, renew: hangRenew, release: hangRelease}
		next := w.sidecarOn("a", g, locker.Config{Journal: s.kill()})
		w.pass(st.ValidUntil.Sub(w.now()) - time.Millisecond)
		if got := next.mustHold("k"); got.State != locker.StateAtRisk {
			t.Errorf("%s, want at_risk", got.State)
		}
		w.pass(time.Millisecond)
		if _, err := next.Get("k", locker.Handle{Fence: st.Fence}); !errors.As(err, new(*locker.LostError)) {
			t.Errorf("got %v, want lost", err)
		}
		g.set(func(g *gate) { g.release = nil })
		w.pass(5 * time.Second)
		if n := next.Residue(); n != 0 {
			t.Errorf("%d things are left to do", n)
		}
	})
}

// A process that is killed between two grants of a key has both in its journal.
func TestOfTwoGrantsOfAKeyTheLaterCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		first := s.hold(want("k", time.Minute))
		w.store.Delete("k")
		book := s.journal.(*notebook)
		var both *notebook
		book.set(func() {
			book.step = func(done bool, records []locker.Record) {
				if done && both == nil && records[0].Phase == locker.PhaseGranted {
					both = book.copy()
				}
			}
		})
		r := want("k", time.Minute)
		r.Wait = time.Second // else this sidecar answers by itself that it is held here
		second := s.take(r)
		s.kill()
		next := w.journaled("a", both)
		if st := next.mustHold("k"); st.Fence != second.Fence {
			t.Errorf("fence %d is held, want %d", st.Fence, second.Fence)
		}
		next.mustBeLost("k", locker.Handle{Fence: first.Fence}, locker.CauseGone)
	})
}

func TestAFullJournalRefusesNewLocksAndKeepsTheRestGoing(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{Journal: newNotebook()})
		st := s.hold(want("k", 3*time.Second))
		book := s.journal.(*notebook)
		book.set(func() { book.full = errFull })
		asked := g.called("acquire")
		waiting := want("other", 3*time.Second)
		waiting.Wait = time.Second
		for _, r := range []locker.Request{want("other", 3*time.Second), waiting} {
			if err := s.tryTake(r); !errors.Is(err, locker.ErrNotRecorded) || !locker.CertainNo(err) {
				t.Errorf("POST: %v", err)
			}
		}
		if g.called("acquire") != asked {
			t.Error("the store was asked")
		}
		change := func(ttl time.Duration) error {
			_, err := s.Extend(context.Background(), "k", locker.Handle{Fence: st.Fence}, locker.Changes{TTL: &ttl})
			return err
		}
		// The next process would believe in the longer lease.
		if err := change(2 * time.Second); !errors.Is(err, locker.ErrNotRecorded) {
			t.Errorf("PATCH to a shorter lease: %v", err)
		}
		if err := change(4 * time.Second); err != nil {
			t.Errorf("PATCH to a longer lease: %v", err)
		}
		w.pass(10 * time.Second)
		s.mustHold("k")
		if err := s.release("k"); err != nil {
			t.Errorf("DELETE: %v", err)
		}
		book.set(func() { book.full = nil })
		s.take(want("other", time.Second))
		w.pass(time.Second)
		if n := s.Residue(); n != 2 { // the lock that is held: by key and by ID
			t.Errorf("%d things are in the table", n)
		}
	})
}

func TestAGrantThatCannotBeRecordedIsGivenBackUntold(t *testing.T) {
	for name, wait := range map[string]time.Duration{"try-once": 0, "in line": time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.journaled("a", newNotebook())
				book := s.journal.(*notebook)
				book.set(func() {
					book.step = func(done bool, records []locker.Record) {
						if !done && records[0].Phase == locker.PhaseGranted {
							book.set(func() { book.full = errFull })
						}
					}
				})
				r := want("k", time.Minute)
				r.Wait = wait
				if err := s.tryTake(r); !errors.Is(err, locker.ErrAcquireUnresolved) {
					t.Errorf("got %v", err)
				}
				w.pass(2 * storeTimeout)
				if _, _, taken := w.store.Value("k"); taken {
					t.Error("the key is still taken")
				}
				if n := s.Residue(); n != 0 {
					t.Errorf("%d things are left", n)
				}
				if strings.Contains(s.log.String(), "ls1/") {
					t.Error("a token is in the log")
				}
			})
		})
	}
}

// An orderly end leaves in the journal what it leaves to end by its TTL, and
// nothing else; the next process takes that up if it comes in time.
func TestWhatAShutdownLeavesToItsEndIsTakenUpAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.journaled("a", newNotebook())
		kept := s.take(want("kept", 3*time.Second)) // its connection stays open
		s.Delivered(kept.ID)
		s.hold(want("dropped", 3*time.Second))
		s.shutDown(locker.ModeGuarded)
		book := s.kill()
		if got := book.phases(); len(got) != 1 || got[locker.PhaseDelivered] != 1 {
			t.Fatalf("left in the journal: %v", got)
		}
		next := w.journaled("a", book)
		w.pass(10 * time.Second)
		if st := next.mustHold("kept"); st.Fence != kept.Fence {
			t.Errorf("another grant: %+v", st)
		}
		// Nobody has seen its connection close, so it is not dropped now either.
		next.shutDown(locker.ModeGuarded)
		if _, _, taken := w.store.Value("kept"); !taken {
			t.Error("it was dropped, though its holder may be at work")
		}
	})
}

// The longest TTL may be another than that of the earlier process, as a restart
// guard that is shorter demands. What was told is kept all the same.
func TestALeaseOfATimeOfLongerTTLsIsCutOnceItsHolderCanKnow(t *testing.T) {
	inWorld(t, func(w *world) {
		const longest = 5 * time.Second
		first := w.journaled("a", newNotebook())
		granted := first.hold(want("k", time.Minute))
		told := granted.ValidUntil
		changed := first.hold(want("changed", time.Minute))
		book := first.kill()
		next := w.sidecarOn("a", w.store, locker.Config{Journal: book, MaxTTL: longest})
		ttl := time.Second
		if st, err := next.Extend(t.Context(), "changed", locker.Handle{Fence: changed.Fence}, locker.Changes{TTL: &ttl}); err != nil || st.ValidFor > ttl {
			t.Errorf("cut by its holder: %+v, %v", st, err)
		}
		for w.now() < told {
			if st := next.mustHold("k"); st.TTL != longest || st.ValidUntil < told {
				t.Errorf("its TTL is %v and it is valid until %d, want %v and no earlier than %d", st.TTL, st.ValidUntil, longest, told)
			}
			w.pass(700 * time.Millisecond)
		}
		w.pass(time.Second)
		if st := next.mustHold("k"); st.ValidFor > longest || st.TTL != longest {
			t.Errorf("then it is valid for %v, with a TTL of %v", st.ValidFor, st.TTL)
		}
		next.kill()
		w.pass(longest)
		if _, _, taken := w.store.Value("k"); taken {
			t.Error("the store keeps it for longer than the longest TTL")
		}
	})
}
