package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
)

const (
	ttl  = 30 * time.Second
	trip = 2 * time.Millisecond // to a node and back, where it matters
)

// cluster is a quorum of memories, each behind faults of its own, in virtual
// time.
type cluster struct {
	*quorum.Backend
	t      *testing.T
	nodes  []*memory.Backend
	faults []*lockertest.Faulty
}

// inCluster runs a test on n nodes whose wall clocks are ahead of ours by what
// skew says, if it is not nil.
func inCluster(t *testing.T, n int, skew func(i int) time.Duration, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		var members []quorum.Member
		for i := range n {
			config := memory.Config{Now: lockertest.BubbleClock}
			if skew != nil {
				config.Wall = func() time.Time { return time.Now().Add(skew(i)) }
			}
			c.nodes = append(c.nodes, memory.New(config))
			c.faults = append(c.faults, lockertest.NewFaulty(c.nodes[i], nil))
			members = append(members, quorum.Member{Name: fmt.Sprint("node ", i), Member: c.faults[i].Member()})
		}
		for _, f := range c.faults {
			t.Cleanup(f.Close)
		}
		c.Backend = c.another(members)
		test(c)
	})
}

func (c *cluster) another(members []quorum.Member) *quorum.Backend {
	b, err := quorum.New(quorum.Config{Members: members, Now: lockertest.BubbleClock})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(b.Close)
	return b
}

// membersOf returns the nodes behind their faults, wrapped once more.
func membersOf(c *cluster, wrap func(locker.Member) locker.Member) (members []quorum.Member) {
	for i, f := range c.faults {
		members = append(members, quorum.Member{Name: fmt.Sprint("node ", i), Member: wrap(f.Member())})
	}
	return members
}

// each sets a fault for all calls to the given nodes.
func (c *cluster) each(f lockertest.Fault, nodes ...int) {
	for _, i := range nodes {
		c.faults[i].SetPlan(func(lockertest.Call) lockertest.Fault { return f })
	}
}

// mend ends all faults.
func (c *cluster) mend() {
	for _, f := range c.faults {
		f.SetPlan(nil)
	}
}

var (
	down = lockertest.Fault{Refuse: errRefused}
	hung = lockertest.Fault{RequestDelay: time.Hour}
)

func claimFor(key locker.Key) locker.Claim {
	return locker.Claim{
		Key: key, Token: locker.NewToken("pod"), Holder: "pod", Note: "work", Keep: ttl,
		NotAfter: lockertest.BubbleClock().Add(storeTimeout),
	}
}

func renewalOf(c locker.Claim) locker.Renewal {
	return locker.Renewal{Key: c.Key, Token: c.Token, Keep: c.Keep, Note: c.Note, NotAfter: lockertest.BubbleClock().Add(storeTimeout)}
}

func surrenderOf(c locker.Claim) locker.Surrender {
	return locker.Surrender{Key: c.Key, Token: c.Token, Holder: c.Holder}
}

// acquire puts a claim as the Locker does, within the store timeout.
func (c *cluster) acquire(claim locker.Claim) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
	defer cancel()
	return c.Acquire(ctx, claim)
}

func (c *cluster) mustAcquire(claim locker.Claim) locker.Grant {
	c.t.Helper()
	g, err := c.acquire(claim)
	if err != nil {
		c.t.Fatalf("acquire %q: %v", claim.Key, err)
	}
	return g
}

func (c *cluster) renew(r locker.Renewal) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
	defer cancel()
	return c.Renew(ctx, []locker.Renewal{r})[0].Err
}

func (c *cluster) release(s locker.Surrender) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), storeTimeout)
	defer cancel()
	return c.Release(ctx, []locker.Surrender{s})[0].Err
}

// has tells at which nodes the claim's token is.
func (c *cluster) has(claim locker.Claim) (at []int) {
	for i, n := range c.nodes {
		if value, _, _ := n.Value(claim.Key); value == claim.Token.Reveal() {
			at = append(at, i)
		}
	}
	return at
}

func (c *cluster) wantAt(when string, claim locker.Claim, nodes ...int) {
	c.t.Helper()
	if at := c.has(claim); fmt.Sprint(at) != fmt.Sprint(nodes) {
		c.t.Errorf("%s: the token is at %v, want %v", when, at, nodes)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantFailure checks for a StoreError.
func wantFailure(t *testing.T, what string, err error, reason locker.StoreReason, certain bool) *locker.StoreError {
	t.Helper()
	var failure *locker.StoreError
	if !errors.As(err, &failure) || failure.Reason != reason || failure.Certain != certain {
		t.Errorf("%s: %v, want %s (certain: %v)", what, err, reason, certain)
		return &locker.StoreError{}
	}
	return failure
}

// took returns how long a call takes.
func took(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began)
}
