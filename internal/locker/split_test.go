package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var errSplit = &locker.StoreError{Reason: locker.StoreNoQuorum, Certain: true, Spent: true, Err: locker.ErrSplitVote}

// tokens records under which a backend was asked.
type tokens struct {
	mu   sync.Mutex
	seen []locker.Token
}

func (s *tokens) add(t locker.Token) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, t)
	return len(s.seen)
}

func (s *tokens) wantDistinct(t *testing.T, n int) {
	t.Helper()
	distinct := make(map[locker.Token]bool)
	for _, token := range s.seen {
		distinct[token] = true
	}
	if len(s.seen) != n || len(distinct) != n {
		t.Errorf("asked %d times with %d tokens, want %d times, each with its own", len(s.seen), len(distinct), n)
	}
}

func TestASplitVoteIsRepeatedWithANewClaimAndCountsFromThat(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent tokens
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			time.Sleep(10 * time.Millisecond)
			if sent.add(c.Token) < 4 {
				return locker.Grant{}, errSplit
			}
			return w.store.Acquire(ctx, c)
		}
		s := w.sidecarOn("pod", g, locker.Config{})
		st := s.take(want("k", 10*time.Second))
		sent.wantDistinct(t, 4)
		if least := 10*time.Second - locker.DriftMargin(10*time.Second) - 10*time.Millisecond; st.ValidFor < least {
			t.Errorf("valid for %v, want %v: the votes before count for nothing", st.ValidFor, least)
		}
		if value, _, _ := w.store.Value("k"); value != sent.seen[3].Reveal() {
			t.Error("the store has another token than that of the last claim")
		}
		if err := s.release("k"); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}

func TestVotesThatStaySplitEndAsACertainNoQuorumInTime(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent tokens
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			sent.add(c.Token)
			return locker.Grant{}, errSplit
		}
		s := w.sidecarOn("pod", g, locker.Config{})
		began := w.now()
		err := s.tryTake(want("k", 10*time.Second))
		var failure *locker.StoreError
		if !errors.As(err, &failure) || failure.Reason != locker.StoreNoQuorum || !failure.Certain {
			t.Errorf("%v, want a certain no_quorum", err)
		}
		if took := w.now().Sub(began); took > storeTimeout {
			t.Errorf("it took %v", took)
		}
		if len(sent.seen) < 4 {
			t.Errorf("asked %d times", len(sent.seen))
		}
		sent.wantDistinct(t, len(sent.seen))
		w.pass(time.Minute)
		if n := g.called("release"); n != 0 || s.Residue() != 0 {
			t.Errorf("%d releases and %d rows left, want none: it is certain that nothing was taken", n, s.Residue())
		}
	})
}

// A part of the store may have granted an earlier claim late: what was in doubt
// when the vote was split is undone.
func TestWhatIsInDoubtWhenAVoteIsSplitIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent tokens
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			switch sent.add(c.Token) {
			case 1:
				_, _ = w.store.Acquire(ctx, c)
				return locker.Grant{}, errBroken
			case 2:
				return locker.Grant{}, errSplit
			}
			time.Sleep(20 * time.Millisecond) // by then the janitor has undone it
			return w.store.Acquire(ctx, c)
		}
		s := w.sidecarOn("pod", g, locker.Config{})
		s.take(want("k", 10*time.Second))
		if sent.seen[0] != sent.seen[1] || sent.seen[1] == sent.seen[2] {
			t.Error("a claim in doubt is sent again under its token, one that was in a split vote under another")
		}
	})
}

func TestAWaiterAsksAnewAfterASplitVoteAndWithEveryTokenThatIsSpent(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent tokens
		g := &gate{Backend: w.store}
		g.acquire = func(ctx context.Context, c locker.Claim) (locker.Grant, error) {
			switch n := sent.add(c.Token); {
			case n < 3:
				return locker.Grant{}, errSplit
			case n < 5:
				return locker.Grant{}, &locker.HeldError{Occupancy: locker.Occupancy{State: locker.OccupancyHeld}, Spent: true}
			case n < 7:
				return locker.Grant{}, &locker.StoreError{Reason: locker.StoreNoQuorum, Certain: true, Spent: true}
			}
			return w.store.Acquire(ctx, c)
		}
		s := w.sidecarOn("pod", g, locker.Config{})
		r := want("k", 10*time.Second)
		r.Wait = time.Minute
		s.take(r)
		sent.wantDistinct(t, 7)
	})
}

func TestAWaitInWhichEveryVoteIsSplitEndsAsNoQuorum(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		g.acquire = func(context.Context, locker.Claim) (locker.Grant, error) { return locker.Grant{}, errSplit }
		s := w.sidecarOn("pod", g, locker.Config{})
		r := want("k", 10*time.Second)
		r.Wait = 2 * time.Second
		began := w.now()
		var failure *locker.StoreError
		if err := s.tryTake(r); !errors.As(err, &failure) || failure.Reason != locker.StoreNoQuorum {
			t.Errorf("%v, want no_quorum", err)
		}
		if took := w.now().Sub(began); took < r.Wait {
			t.Errorf("given up after %v of %v", took, r.Wait)
		}
	})
}
