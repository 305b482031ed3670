package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeLock grants to one at a time unless it is broken.
type fakeLock struct {
	taken  chan struct{} // holds an element while somebody has the lock
	broken bool
	polled bool // whoever has just released gets it again, if he wants
}

type fakeClient struct {
	lock   *fakeLock
	closed chan struct{}
	fail   error // of Release
}

func (c *fakeClient) Acquire(context.Context, string) error {
	if c.lock.broken {
		return nil
	}
	for c.lock.polled {
		select {
		case c.lock.taken <- struct{}{}:
			return nil
		default:
			time.Sleep(5 * time.Millisecond) // of the test's clock
		}
	}
	select {
	case c.lock.taken <- struct{}{}:
		return nil
	case <-c.closed:
		return errors.New("closed")
	}
}

func (c *fakeClient) Release(context.Context) error {
	if c.fail == nil && !c.lock.broken {
		<-c.lock.taken
	}
	return c.fail
}

func (c *fakeClient) Close() {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
}

func fakeClients(n int, lock *fakeLock) []client {
	lock.taken = make(chan struct{}, 1)
	var all []client
	for range n {
		all = append(all, &fakeClient{lock: lock, closed: make(chan struct{})})
	}
	return all
}

func TestAContestCountsWhatIsGrantedWhileItIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := contest{warmUp: 95 * time.Millisecond, during: time.Second, hold: 10 * time.Millisecond}
		var looks []time.Time
		stints, err := c.compete(t.Context(), fakeClients(3, new(fakeLock)), "k", func() error {
			looks = append(looks, time.Now())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(looks) != 2 || looks[1].Sub(looks[0]) != c.during {
			t.Errorf("looked at %v, want at the begin and at the end of %v", looks, c.during)
		}
		if len(stints) != 100 { // one every 10 ms
			t.Errorf("%d stints, want 100", len(stints))
		}
		for _, s := range stints {
			if s.granted.Before(looks[0]) || s.granted.After(looks[1]) {
				t.Errorf("a stint of %v counts, outside of %v", s.granted, looks)
			}
			if s.releasing.Sub(s.granted) != c.hold {
				t.Errorf("the lock was kept for %v, want %v", s.releasing.Sub(s.granted), c.hold)
			}
		}
	})
}

func TestPoliteWorkersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := contest{warmUp: time.Millisecond, during: time.Second, hold: time.Millisecond, polite: true}
		stints, err := c.compete(t.Context(), fakeClients(2, &fakeLock{polled: true}), "k", func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(handOvers(stints)), len(stints)-1; got != want {
			t.Errorf("%d of %d grants went to the other worker", got, want)
		}
	})
}

func TestTwoHoldersFailAContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := contest{during: time.Second, hold: 2 * time.Millisecond}
		_, err := c.compete(t.Context(), fakeClients(2, &fakeLock{broken: true}), "k", func() error { return nil })
		if !errors.Is(err, errTwoHolders) {
			t.Errorf("a lock that everybody has: %v", err)
		}
	})
}

func TestTheFailureOfOneWorkerEndsTheWaitOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fakeClients(3, new(fakeLock))
		failure := errors.New("lost")
		clients[0].(*fakeClient).fail = failure // and keeps the lock
		c := contest{during: time.Hour}
		begin := time.Now()
		_, err := c.compete(t.Context(), clients, "k", func() error { return nil })
		if !errors.Is(err, failure) || !strings.Contains(err.Error(), "worker 0") {
			t.Errorf("%v, want the failure of worker 0", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestAContestInWhichNobodyGetsTheLockFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fakeClients(1, new(fakeLock))
		lock := clients[0].(*fakeClient).lock
		lock.taken <- struct{}{} // by somebody else, for ever
		c := contest{during: time.Second}
		begin := time.Now()
		stints, err := c.compete(t.Context(), clients, "k", func() error { return nil })
		if err == nil || !strings.Contains(err.Error(), "nobody got the lock for 1s") {
			t.Errorf("it has %d stints, %v", len(stints), err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestAHandOverIsFromTheBeginOfAReleaseToTheGrantOfAnother(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	stints := []stint{
		{worker: 1, asked: at(0), granted: at(30), releasing: at(31), released: at(34)},
		{worker: 0, asked: at(0), granted: at(1), releasing: at(3), released: at(5)},
		{worker: 0, asked: at(5), granted: at(6), releasing: at(10), released: at(11)},
	}
	if err := inOrder(stints); err != nil {
		t.Fatal(err)
	}
	if got, want := handOvers(stints), []int64{20e6}; !slices.Equal(got, want) { // not from worker 0 to itself
		t.Errorf("hand-overs %v, want %v", got, want)
	}
	if got, want := rounds(stints), []int64{5e6, 6e6, 34e6}; !slices.Equal(got, want) {
		t.Errorf("rounds %v, want %v", got, want)
	}
	if least, most := share(stints, 3); least != 0 || most != 2 {
		t.Errorf("shares from %d to %d, want 0 to 2", least, most)
	}
}
