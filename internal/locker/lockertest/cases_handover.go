package lockertest

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var handOverCases = []testCase{
	{"a lock is handed over inside a process in one step", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, first := h.take(t, "k", long)
		p := crowd.process(t, "p")
		c := p.join(t, "k")
		c.claim.Floor = first + aDay
		since := h.Now()
		turn := p.turn(c.number, 0)
		verdict, grant, err := c.handOver(t, surrender(holder, 0), turn)
		if verdict != nil || err != nil || grant.Fence < c.claim.Floor {
			t.Fatalf("verdict %v, fence %d, %v; want a grant with a fence of at least %d", verdict, grant.Fence, err, c.claim.Floor)
		}
		h.wantLeft(t, "k", long, since)
		h.wantTold(t, grant, long, since)
		h.mustBeOurs(t, c.claim)
		wantErr(t, "release what was handed over", h.release(t, surrender(holder, 0))[0], locker.ErrTaken)
		if o := h.mustBeHeld(t, "k"); o.QueueLength != 0 {
			t.Errorf("%d in line, want none", o.QueueLength)
		}

		time.Sleep(4 * rounding)
		verdict, again, err := c.handOver(t, surrender(holder, 0), turn)
		h.wantTold(t, again, long-3*rounding, since.Add(3*rounding))
		if verdict != nil || err != nil || again.Fence != grant.Fence {
			t.Errorf("sent again: verdict %v, fence %d, %v; want a grant with fence %d", verdict, again.Fence, err, grant.Fence)
		}
		h.mustRelease(t, c.claim)
		verdict, _, err = c.handOver(t, surrender(holder, 0), turn)
		wantErr(t, "verdict after the release", verdict, locker.ErrGone)
		wantErr(t, "grant after the release", err, locker.ErrSpent)
		h.mustBeFree(t, "k")
		p.wantWoken(t, 0)
	}},
	{"a lock is handed over past those who came later, and to the oldest caller only", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p, q := crowd.process(t, "p"), crowd.process(t, "q")
		first, other, second := p.join(t, "k"), q.join(t, "k"), p.join(t, "k")
		verdict, _, err := first.handOver(t, surrender(holder, 0), p.turn(first.number, second.number))
		if verdict != nil || err != nil {
			t.Fatalf("verdict %v, %v; want a grant", verdict, err)
		}
		other.wantAhead(t, 0, 0, 2)
		second.wantAhead(t, 0, 1, 2)
		q.wantWoken(t, 0)

		turn := p.turn(second.number, 0)
		verdict, _, err = second.handOver(t, surrender(first.claim, 0), turn)
		wantErr(t, "verdict", verdict, nil)
		if held := second.checkStanding(t, turn, err); !held.Queued || held.Standing.Ahead != 1 {
			t.Errorf("told %+v, want that the key is free and one place is ahead", held)
		}
		q.await(t, locker.HintWake, 1)
		h.wantNoOvertaking(t, "k", 2)
		other.mustGet(t, 0)
		h.mustRelease(t, other.claim)
		second.mustGet(t, 0)
		q.wantWoken(t, 1)
	}},
	{"the dead do not keep a lock from being handed over", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		crowd.process(t, "dead").joinFor(t, "k", short/4)
		p := crowd.process(t, "p")
		c := p.join(t, "k")
		time.Sleep(short/4 + rounding)
		verdict, _, err := c.handOver(t, surrender(holder, 0), p.turn(c.number, 0))
		if verdict != nil || err != nil {
			t.Errorf("verdict %v, %v; want a grant", verdict, err)
		}
		h.wantLine(t, "k", 0)
	}},
	{"a minimum hold is kept though the next caller of the process waits", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		holder, _ := h.take(t, "k", long)
		p := crowd.process(t, "p")
		c := p.join(t, "k")
		since := h.Now()
		turn := p.turn(c.number, 0)
		verdict, _, err := c.handOver(t, surrender(holder, short/2), turn)
		wantErr(t, "verdict", verdict, nil)
		if held := c.checkStanding(t, turn, err); held.Queued || held.State != locker.OccupancyMinHold {
			t.Errorf("told %+v, want min_hold", held)
		}
		h.wantLeft(t, "k", short/2, since)
		wantErr(t, "renew", h.renew(t, h.renewal(holder, long))[0], locker.ErrTaken)
		c.wantAhead(t, 0, 0, 1)
		time.Sleep(short/2 + rounding)
		c.mustGet(t, 0)
		p.wantWoken(t, 0)
	}},
	{"what is not ours is not handed over", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		ended, _ := h.take(t, "k", long)
		h.mustRelease(t, ended)
		p := crowd.process(t, "p")
		c := &caller{process: p, claim: h.claim("k", long)}
		verdict, _, err := c.handOver(t, surrender(ended, 0), p.turn(0, 0))
		wantErr(t, "verdict on a lock that is gone", verdict, locker.ErrGone)
		if err == nil || !locker.CertainNo(err) {
			t.Errorf("grant: %v, want a certain no", err)
		}
		c.sendLeave(t, p.turn(0, 0))

		other, fence := h.take(t, "k", long)
		verdict, _, err = c.handOver(t, surrender(ended, 0), p.turn(0, 0))
		wantErr(t, "verdict on a lock that another has", verdict, locker.ErrTaken)
		if err == nil || !locker.CertainNo(err) {
			t.Errorf("grant: %v, want a certain no", err)
		}
		if again := h.mustAcquire(t, other); again != fence {
			t.Errorf("the holder's fence is now %d, was %d", again, fence)
		}
	}},
	{"a lock is given back though the claim to which it was to go cannot be granted", func(t T, h Harness) {
		crowd := h.crowd(t)
		defer crowd.close()
		p, q := crowd.process(t, "p"), crowd.process(t, "q")
		wakes := 0
		for key, spoil := range map[locker.Key]func(*locker.Claim){
			"late":        func(c *locker.Claim) { c.NotAfter = h.past() },
			"implausible": func(c *locker.Claim) { c.Floor = locker.MaxFence + 1 },
		} {
			holder, _ := h.take(t, key, long)
			c, other := p.join(t, key), q.join(t, key)
			spoil(&c.claim)
			verdict, _, err := c.handOver(t, surrender(holder, 0), p.turn(c.number, 0))
			wantErr(t, "verdict", verdict, nil)
			var held *locker.HeldError
			if !locker.CertainNo(err) || errors.As(err, &held) {
				t.Errorf("%s claim: %v, want a certain no of its own", key, err)
			}
			wakes++
			p.await(t, locker.HintWake, wakes) // as by a release
			h.wantNoOvertaking(t, key, 2)
			c.mustLeave(t, 0)
			other.mustGet(t, 0)
		}
		p.wantWoken(t, wakes)
	}},
}
