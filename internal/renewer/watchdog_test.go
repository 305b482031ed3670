package renewer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

// table is a Table whose renewals succeed at once unless the test decides
// otherwise. Its clock runs with the bubble's, plus what the machine slept.
type table struct {
	dog   *renewer.Watchdog
	start time.Time
	stop  func()

	mu      sync.Mutex
	slept   time.Duration
	leases  map[locker.GrantID]time.Duration
	renewed map[locker.GrantID][]locker.Instant
	ended   map[locker.GrantID]locker.Instant
	batches int
	renew   func(ctx context.Context, ids []locker.GrantID) // instead, outside the mutex
	expire  func()
}

func inBubble(t *testing.T, test func(t *testing.T, tab *table)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.run()
		defer tab.stop()
		test(t, tab)
	})
}

func newTable() *table {
	tab := &table{
		start: time.Now(), leases: make(map[locker.GrantID]time.Duration),
		renewed: make(map[locker.GrantID][]locker.Instant), ended: make(map[locker.GrantID]locker.Instant),
	}
	tab.dog = renewer.New(tab.now)
	return tab
}

func (tab *table) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { tab.dog.Run(ctx, tab) })
	tab.stop = func() {
		cancel()
		wg.Wait()
	}
}

func (tab *table) now() locker.Instant {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return locker.Instant(time.Since(tab.start) + tab.slept)
}

func (tab *table) suspend(d time.Duration) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.slept += d
}

// hold watches a lease that is confirmed now.
func (tab *table) hold(id locker.GrantID, ttl time.Duration) {
	now := tab.now()
	tab.mu.Lock()
	tab.leases[id] = ttl
	tab.mu.Unlock()
	tab.dog.Watch(locker.Beat{ID: id, Confirmed: now, TTL: ttl, ValidUntil: now.Add(ttl - locker.DriftMargin(ttl))})
}

func (tab *table) Renew(ctx context.Context, ids []locker.GrantID) {
	now := tab.now()
	tab.mu.Lock()
	tab.batches++
	for _, id := range ids {
		tab.renewed[id] = append(tab.renewed[id], now)
	}
	instead := tab.renew
	ttls := make([]time.Duration, len(ids))
	for i, id := range ids {
		ttls[i] = tab.leases[id]
	}
	tab.mu.Unlock()
	if instead != nil {
		instead(ctx, ids)
		return
	}
	for i, id := range ids {
		tab.hold(id, ttls[i])
	}
}

func (tab *table) Expire(ids []locker.GrantID) {
	now := tab.now()
	tab.mu.Lock()
	for _, id := range ids {
		tab.ended[id] = now
	}
	instead := tab.expire
	tab.mu.Unlock()
	if instead != nil {
		instead()
	}
}

func (tab *table) set(change func()) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	change()
}

func TestAboutThreeRenewalsPerTTLEarlyAndNeverLate(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 30 * time.Second, 10 * time.Minute, time.Hour, 24 * time.Hour} {
		inBubble(t, func(t *testing.T, tab *table) {
			ttls := max(1, min(30, 2*time.Hour/ttl))
			tab.hold(1, ttl)
			time.Sleep(ttls * ttl)
			synctest.Wait()
			last := locker.Instant(0)
			for _, at := range tab.renewed[1] {
				if gap := at.Sub(last); gap > ttl/3 || gap < ttl/3-ttl/30 {
					t.Fatalf("TTL %v: renewed after %v", ttl, gap)
				}
				last = at
			}
			if n := len(tab.renewed[1]); n < 3*int(ttls)-1 || n > 4*int(ttls) {
				t.Errorf("TTL %v: %d renewals in %d TTLs", ttl, n, ttls)
			}
			if len(tab.ended) != 0 {
				t.Errorf("TTL %v: ended", ttl)
			}
		})
	}
}

func TestTenThousandLeasesNeedFewBatches(t *testing.T) {
	for name, apart := range map[string]time.Duration{"taken at once": 0, "taken over ten seconds": time.Millisecond} {
		inBubble(t, func(t *testing.T, tab *table) {
			const leases = 10_000
			for id := range locker.GrantID(leases) {
				tab.hold(id+1, 30*time.Second)
				if apart > 0 {
					time.Sleep(apart)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			renewals := 0
			for id, at := range tab.renewed {
				renewals += len(at)
				for i := 1; i < len(at); i++ {
					if gap := at[i].Sub(at[i-1]); gap > 10*time.Second {
						t.Fatalf("%s: lease %d was renewed after %v", name, id, gap)
					}
				}
			}
			if renewals < 5*leases || len(tab.renewed) != leases || len(tab.ended) != 0 {
				t.Errorf("%s: %d renewals of %d leases, %d ended", name, renewals, len(tab.renewed), len(tab.ended))
			}
			if per := renewals / tab.batches; per < 180 {
				t.Errorf("%s: %d renewals in %d batches, %d each", name, renewals, tab.batches, per)
			}
		})
	}
}

func TestABatchThatHangsDelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		const ttl = 3 * time.Second
		tab.set(func() {
			tab.renew = func(ctx context.Context, ids []locker.GrantID) {
				if ids[0] == 1 {
					<-ctx.Done()
					return
				}
				for _, id := range ids {
					tab.hold(id, ttl)
				}
			}
		})
		tab.hold(1, ttl)
		time.Sleep(500 * time.Millisecond)
		tab.hold(2, ttl)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(tab.renewed[2]); n < 55 {
			t.Errorf("the other lease was renewed %d times in a minute", n)
		}
		if _, ended := tab.ended[2]; ended {
			t.Error("the other lease has ended")
		}
		want := locker.Instant(ttl - locker.DriftMargin(ttl))
		if at, ended := tab.ended[1]; !ended || at != want {
			t.Errorf("the hanging lease ended at %d (%v), want %d", at, ended, want)
		}
		if tab.dog.Stuck() {
			t.Error("a hanging store makes the watchdog count as stuck")
		}
	})
}

func TestALeaseThatIsNotRenewedEndsToTheNanosecond(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		tab.set(func() { tab.renew = func(context.Context, []locker.GrantID) {} })
		for id, ttl := range []time.Duration{time.Second, 7 * time.Second, time.Hour} {
			tab.hold(locker.GrantID(id+1), ttl)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for id, ttl := range []time.Duration{time.Second, 7 * time.Second, time.Hour} {
			if at := tab.ended[locker.GrantID(id+1)]; at != locker.Instant(ttl-locker.DriftMargin(ttl)) {
				t.Errorf("TTL %v: ended at %v", ttl, time.Duration(at))
			}
			if n := len(tab.renewed[locker.GrantID(id+1)]); n != 1 {
				t.Errorf("TTL %v: %d renewals though none was asked for again", ttl, n)
			}
		}
	})
}

func TestAForgottenLeaseIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		tab.hold(1, 3*time.Second)
		tab.hold(2, 3*time.Second)
		tab.dog.Forget(1)
		tab.dog.Forget(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(tab.renewed[1]) != 0 || len(tab.ended) != 0 || len(tab.renewed[2]) == 0 {
			t.Errorf("renewals %d and %d, ended %v", len(tab.renewed[1]), len(tab.renewed[2]), tab.ended)
		}
	})
}

func TestASuspendedClockIsNoticedWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		tab.hold(1, time.Hour)
		time.Sleep(10 * time.Minute)
		tab.suspend(2 * time.Hour)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ended := tab.ended[1]; !ended {
			t.Error("a lease that ended during the suspension was not told")
		}
		if len(tab.renewed[1]) != 0 {
			t.Error("it was renewed")
		}

		tab.hold(2, time.Hour)
		tab.suspend(30 * time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(tab.renewed[2]) != 1 {
			t.Error("a lease that became due during the suspension was not renewed")
		}
	})
}

func TestALockThatIsTakenRightAfterASuspensionIsRenewedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		tab.hold(1, time.Hour) // the loop sleeps for a second
		time.Sleep(time.Millisecond)
		tab.suspend(10 * time.Second)
		tab.hold(2, time.Second)
		time.Sleep(time.Second / 3)
		synctest.Wait()
		if len(tab.renewed[2]) != 1 {
			t.Error("a third of its TTL has passed, and it was not renewed")
		}
	})
}

func TestOnlyALoopThatHangsIsStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		time.Sleep(time.Hour)
		if tab.dog.Stuck() {
			t.Error("stuck though nothing is watched")
		}
		tab.hold(1, 24*time.Hour)
		for range 100 {
			time.Sleep(time.Minute)
			if tab.dog.Stuck() {
				t.Fatal("stuck though nothing is due")
			}
		}
		tab.dog.Forget(1)
		time.Sleep(time.Hour)
		if tab.dog.Stuck() {
			t.Error("stuck though nothing is watched any more")
		}

		release := make(chan struct{})
		tab.set(func() {
			tab.expire = func() { <-release }
			tab.renew = func(context.Context, []locker.GrantID) {}
		})
		tab.hold(2, time.Second)
		tab.hold(3, time.Hour)
		time.Sleep(9 * time.Second)
		if tab.dog.Stuck() {
			t.Error("stuck too early")
		}
		time.Sleep(3 * time.Second)
		if !tab.dog.Stuck() {
			t.Error("a loop that hangs does not count as stuck")
		}
		close(release)
		synctest.Wait()
		if tab.dog.Stuck() {
			t.Error("still stuck though the loop turns again")
		}
	})
}

func TestALoopThatNeverRanIsStuckOnceSomethingIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		time.Sleep(time.Hour)
		tab.hold(1, time.Hour)
		if tab.dog.Stuck() {
			t.Error("stuck at once")
		}
		time.Sleep(11 * time.Second)
		if !tab.dog.Stuck() {
			t.Error("nobody tends the lease, and the watchdog does not count as stuck")
		}
	})
}

func TestRunWaitsForTheRenewalsThatAreOnTheirWay(t *testing.T) {
	inBubble(t, func(t *testing.T, tab *table) {
		answered := false
		tab.set(func() {
			tab.renew = func(ctx context.Context, _ []locker.GrantID) {
				<-ctx.Done()
				time.Sleep(200 * time.Millisecond)
				answered = true
			}
		})
		tab.hold(1, 3*time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		tab.stop()
		if !answered {
			t.Error("it did not wait")
		}
	})
}
