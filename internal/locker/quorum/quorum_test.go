package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheMembersAreAnOddNumberOfAtLeastThree(t *testing.T) {
	for n := range 8 {
		var members []quorum.Member
		for range n {
			members = append(members, quorum.Member{Member: memory.New(memory.Config{})})
		}
		b, err := quorum.New(quorum.Config{Members: members})
		if ok := n >= 3 && n%2 == 1; ok != (err == nil) {
			t.Errorf("%d members: %v", n, err)
		}
		if b != nil {
			b.Close()
		}
	}
}

// minorities are the subsets of n nodes that are no majority.
func minorities(n int) (all [][]int) {
	for set := 1; set < 1<<n; set++ {
		var nodes []int
		for i := range n {
			if set&(1<<i) != 0 {
				nodes = append(nodes, i)
			}
		}
		if len(nodes) <= n/2 {
			all = append(all, nodes)
		}
	}
	return all
}

// No node has a role of its own: it is all the same which of them fail.
func TestAMinorityThatFailsCostsNoTimeWhateverItIs(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, nodes := range minorities(n) {
			for how, f := range map[string]lockertest.Fault{"down": down, "hung": hung, "slow": {RequestDelay: 100 * time.Millisecond}, "deaf": {LoseReply: true}} {
				t.Run(fmt.Sprint(n, nodes, how), func(t *testing.T) {
					inCluster(t, n, nil, func(c *cluster) {
						for i := range c.nodes {
							c.each(lockertest.Fault{RequestDelay: trip}, i)
						}
						c.each(f, nodes...)
						// The first grant may take a second trip for its fence.
						c.mustAcquire(claimFor("first"))
						claim := claimFor("k")
						for _, step := range []struct {
							what string
							call func() error
						}{
							{"acquire", func() error { _, err := c.acquire(claim); return err }},
							{"renew", func() error { return c.renew(renewalOf(claim)) }},
							{"annotate", func() error { return c.Annotate(c.t.Context(), "k", claim.Token, "more") }},
							{"release", func() error { return c.release(surrenderOf(claim)) }},
						} {
							var err error
							if d := took(func() { err = step.call() }); err != nil || d > trip {
								t.Errorf("%s: %v after %v", step.what, err, d)
							}
						}
						o, err := c.Inspect(c.t.Context(), "first")
						if err != nil || o.State != locker.OccupancyHeld {
							t.Errorf("inspect: %v, %v", o.State, err)
						}
					})
				})
			}
		}
	}
}

func TestWithoutAMajorityNothingIsGrantedAndNothingLeft(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.each(down, 0, 2)
		claim := claimFor("k")
		var err error
		if d := took(func() { _, err = c.acquire(claim) }); d > 0 {
			t.Errorf("the answer took %v", d)
		}
		failure := wantFailure(t, "two are down", err, locker.StoreNoQuorum, true)
		if !failure.Spent || errors.Is(err, locker.ErrSplitVote) {
			t.Errorf("%+v, want that the claim is spent, and not that to ask again helps", failure)
		}
		synctest.Wait()
		c.wantAt("two are down", claim)

		c.each(hung, 0, 2)
		claim = claimFor("k")
		if d := took(func() { _, err = c.acquire(claim) }); d > storeTimeout {
			t.Errorf("the answer took %v", d)
		}
		wantFailure(t, "two hang", err, locker.StoreNoQuorum, false)
		c.wantAt("two hang: it is its caller's to undo", claim, 1)
		wantFailure(t, "renew", c.renew(renewalOf(claim)), locker.StoreNoQuorum, false)
		wantFailure(t, "release", c.release(surrenderOf(claim)), locker.StoreNoQuorum, false)
		synctest.Wait()
		c.wantAt("after its release", claim)

		c.each(down, 0, 1, 2)
		wantFailure(t, "renew while all are down", c.renew(renewalOf(claim)), locker.StoreNoQuorum, true)
		if _, err := c.Inspect(c.t.Context(), "k"); err == nil {
			t.Error("inspected without a majority")
		}
	})
}

func TestTheReasonOfAMajorityIsTold(t *testing.T) {
	for reason, want := range map[locker.StoreReason]locker.StoreReason{
		locker.StoreWriteRefused: locker.StoreWriteRefused, locker.StoreAuthFailed: locker.StoreAuthFailed,
		locker.StoreRecovering: locker.StoreRecovering, locker.StoreUnavailable: locker.StoreNoQuorum,
	} {
		inCluster(t, 5, nil, func(c *cluster) {
			f := lockertest.Fault{Refuse: &locker.StoreError{Reason: reason, Certain: true}}
			c.each(f, 0, 1)
			claim := claimFor("k")
			c.mustAcquire(claim)
			c.wantAt("a minority", claim, 2, 3, 4)
			c.each(f, 2)
			_, err := c.acquire(claimFor("other"))
			wantFailure(t, "a majority: "+string(reason), err, want, true)
		})
	}
}

// Of three who each have one node nobody has the lock.
func TestHeldIsSaidOfOneAndTheSameLockAlone(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		for i, n := range c.nodes {
			n.Put("k", fmt.Sprint("ls1/pod/", i), ttl)
		}
		_, err := c.acquire(claimFor("k"))
		failure := wantFailure(t, "three tokens", err, locker.StoreNoQuorum, true)
		if !errors.Is(err, locker.ErrSplitVote) || failure.Spent {
			t.Errorf("%v (spent: %v), want a split vote that spends nothing", err, failure.Spent)
		}
		if o, err := c.Inspect(c.t.Context(), "k"); err != nil || o.State != locker.OccupancyUnknown {
			t.Errorf("inspect: %v, %v; want unknown", o.State, err)
		}

		c.nodes[0].Delete("k")
		_, err = c.acquire(claimFor("k"))
		if failure := wantFailure(t, "two tokens and our own", err, locker.StoreNoQuorum, true); !failure.Spent {
			t.Error("a claim that one node has granted is not spent")
		}
		wantErr(t, "two tokens and our own", err, locker.ErrSplitVote)
		synctest.Wait()

		c.nodes[1].Put("k", "ls1/pod/2", ttl/2)
		claim := claimFor("k")
		_, err = c.acquire(claim)
		var held *locker.HeldError
		if !errors.As(err, &held) || held.ExpiresIn != ttl/2 || held.Holder == nil || held.Holder.Pod != "pod" {
			t.Errorf("one token at two: %v, want held for %v, until so few have it that they are no majority", err, ttl/2)
		}
		synctest.Wait()
		c.wantAt("refused", claim)
	})
}

func TestAClaimInVainIsTakenBackAlsoWhereItIsGrantedLate(t *testing.T) {
	for name, late := range map[string]lockertest.Fault{
		"slow":               {RequestDelay: 100 * time.Millisecond},
		"slow reply":         {ReplyDelay: 100 * time.Millisecond},
		"lost reply":         {LoseReply: true},
		"executed afterward": {RequestDelay: 290 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 5, nil, func(c *cluster) {
				for i := range 3 {
					c.nodes[i].Put("k", "ls1/other/x", ttl)
				}
				c.each(late, 3, 4)
				claim := claimFor("k")
				_, err := c.acquire(claim)
				var held *locker.HeldError
				if !errors.As(err, &held) || !held.Spent {
					t.Errorf("%v, want held, and the claim spent", err)
				}
				time.Sleep(time.Second)
				c.wantAt("a second later", claim)
				c.mend()
				time.Sleep(time.Second)
				if owed, coming := c.Owed(), c.Coming(); owed != 0 || coming != 0 {
					t.Errorf("%d owed, %d expected", owed, coming)
				}
			})
		})
	}
}

// Retries of a claim go under its token, so a majority whose replies were lost
// is recognised.
// Who waits asks again under the token whose fate was not known. That others have
// the lock at a majority says nothing of the rest.
func TestAClaimThatWasInDoubtIsTakenBackAlsoWhereNobodyAnswersNow(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.each(hung, 0)
		c.each(down, 1)
		c.each(lockertest.Fault{LoseReply: true}, 2)
		_, err := c.acquire(claim)
		wantFailure(t, "nobody answers", err, locker.StoreNoQuorum, false)
		c.wantAt("nobody has answered", claim, 2)

		time.Sleep(time.Second)
		c.mend()
		c.each(hung, 2)
		c.mustAcquire(claimFor("k"))
		for i := range 200 { // and others that are not answered there
			c.mustAcquire(claimFor(locker.Key(fmt.Sprint(i))))
		}
		c.each(down, 2)
		claim.NotAfter = lockertest.BubbleClock().Add(storeTimeout)
		_, err = c.acquire(claim)
		var held *locker.HeldError
		if !errors.As(err, &held) || !held.Spent {
			t.Errorf("asked again: %v, want that another has it and the claim is spent", err)
		}
		c.mend()
		time.Sleep(2 * time.Second)
		c.wantAt("once all answer", claim)
		if n := c.Doubted(); n != 0 {
			t.Errorf("%d claims are still in doubt", n)
		}
	})
}

func TestClaimsInDoubtAreForgotten(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.each(hung, 0, 1)
		ask := func() locker.Claim {
			claim := claimFor("k")
			_, err := c.acquire(claim)
			wantFailure(t, "two do not answer", err, locker.StoreNoQuorum, false)
			return claim
		}
		wantDoubted := func(when string, least, most int) {
			t.Helper()
			if n := c.Doubted(); n < least || n > most {
				t.Errorf("%s, %d claims are in doubt, want %d to %d", when, n, least, most)
			}
		}
		claim := ask()
		wantDoubted("without an outcome", 1, 1)
		_ = c.release(surrenderOf(claim))
		wantDoubted("once it is given back", 0, 0)
		for range 200 {
			ask()
		}
		wantDoubted("while nobody cares for them", 1, 200)
		time.Sleep(2 * ttl)
		for range 200 {
			ask()
		}
		wantDoubted("once they are over", 1, 300)
	})
}

func TestAGrantWhoseRepliesGotLostIsRecognised(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		for i := range 2 {
			first := true
			c.faults[i].SetPlan(func(call lockertest.Call) lockertest.Fault {
				f := lockertest.Fault{LoseReply: first && call.Op == lockertest.OpAcquire}
				first = false
				return f
			})
		}
		c.each(down, 2)
		claim := claimFor("k")
		c.mustAcquire(claim)
		c.wantAt("granted", claim, 0, 1)
	})
}

// What a member granted long ago ends sooner than a lease that is counted from
// the latest request.
func TestAGrantIsAsLongAsAMajorityKeepsIt(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		for i := range 2 {
			if _, err := c.nodes[i].Acquire(c.t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(ttl / 2)
		claim.NotAfter = lockertest.BubbleClock().Add(storeTimeout)
		if g := c.mustAcquire(claim); g.Left != ttl/2 {
			t.Errorf("%v left, want %v: one of any majority has only that", g.Left, ttl/2)
		}
	})
}

func TestCloseTakesBackWhatIsOwedAndRefusesWhatComesLater(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		claim := claimFor("k")
		c.mustAcquire(claim)
		synctest.Wait()
		c.each(down, 2)
		wantErr(t, "release", c.release(surrenderOf(claim)), nil)
		c.mend()
		c.wantAt("before", claim, 2)
		c.Close()
		c.wantAt("after", claim)
		_, err := c.acquire(claimFor("k"))
		wantFailure(t, "acquire", err, locker.StoreNoQuorum, true)
		if err := c.renew(renewalOf(claim)); err == nil {
			t.Error("renewed after the end")
		}
	})
}

func TestACallerWhoLeavesIsAnsweredAtOnce(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.each(hung, 0, 1, 2)
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Millisecond)
		defer cancel()
		claim := claimFor("k")
		d := took(func() {
			if _, err := c.Acquire(ctx, claim); err == nil || locker.CertainNo(err) {
				t.Errorf("acquire: %v, want unknown", err)
			}
		})
		if d != 10*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}
