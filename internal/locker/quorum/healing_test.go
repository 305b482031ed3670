package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
)

// A member that has lost a lock tells so late, or is told late to put it back:
// by then the lock has been given back, and must not be there again.
func TestALockThatWasGivenBackIsNotPutBack(t *testing.T) {
	for name, plan := range map[string]func(lockertest.Call) lockertest.Fault{
		"the renewal is executed late": func(c lockertest.Call) (f lockertest.Fault) {
			if c.Op == lockertest.OpRenew {
				f.RequestDelay = 50 * time.Millisecond
			}
			return f
		},
		"the renewal is answered late": func(c lockertest.Call) (f lockertest.Fault) {
			if c.Op == lockertest.OpRenew {
				f.ReplyDelay = 50 * time.Millisecond
			}
			return f
		},
		"the remedy is executed late": func(c lockertest.Call) (f lockertest.Fault) {
			if c.Op == lockertest.OpHeal {
				f.RequestDelay = 50 * time.Millisecond
			}
			return f
		},
		"the release is executed late, and the remedy later": func(c lockertest.Call) (f lockertest.Fault) {
			switch c.Op {
			case lockertest.OpHeal:
				f.RequestDelay = 100 * time.Millisecond
			case lockertest.OpRelease:
				f.RequestDelay = 50 * time.Millisecond
			}
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, handedOver := range []bool{false, true} {
				inCluster(t, 3, nil, func(c *cluster) {
					claim := claimFor("k")
					c.mustAcquire(claim)
					synctest.Wait()
					c.nodes[2].Wipe()
					c.faults[2].SetPlan(plan)
					wantErr(t, "renew", c.renew(renewalOf(claim)), nil)
					if handedOver {
						next := claimFor("k")
						if verdict, _, err := c.HandOver(c.t.Context(), surrenderOf(claim), next, turnOf("p", 1, 1)); verdict.Err != nil || err != nil {
							t.Errorf("hand over: %v, %v", verdict.Err, err)
						}
						defer func() { wantErr(t, "release", c.release(surrenderOf(next)), nil) }()
					} else {
						wantErr(t, "release", c.release(surrenderOf(claim)), nil)
					}
					time.Sleep(time.Second)
					c.wantAt("a second later", claim)
					if owed, coming, renewing := c.Owed(), c.Coming(), c.Renewing(); owed != 0 || coming != 0 || renewing != 0 {
						t.Errorf("%d owed, %d expected, %d renewed", owed, coming, renewing)
					}
				})
			}
		})
	}
}

// What a claim that was answered late has put at a member is taken back there
// when it is answered, and not only once it could not be executed any more: the
// next who asks would meet it.
func TestWhatComesLateIsTakenBackAtOnce(t *testing.T) {
	inCluster(t, 3, nil, func(c *cluster) {
		c.faults[2].SetPlan(func(call lockertest.Call) (f lockertest.Fault) {
			if call.Op == lockertest.OpAcquire {
				f.RequestDelay = 20 * time.Millisecond
			}
			return f
		})
		claim := claimFor("k")
		c.mustAcquire(claim)
		wantErr(t, "release", c.release(surrenderOf(claim)), nil)
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		c.wantAt("when it has been answered", claim)
		if owed := c.Owed(); owed != 0 {
			t.Errorf("%d owed", owed)
		}
	})
}
