package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// inTime tries what a pause of any process makes late: the sidecar tells of a loss
// some 30 ms before the end. try returns how much earlier than that something
// happened, for keys that begin with a prefix of its own; once it must be so.
func inTime(t *testing.T, try func(prefix string) time.Duration) {
	t.Helper()
	const tries = 5
	for n := range tries {
		margin := try(fmt.Sprint("try", n, "-"))
		t.Logf("least margin %v", margin)
		if margin > 0 {
			return
		}
	}
	t.Errorf("a loss was read after the end of validity, %d times in a row", tries)
}

// lossMargins waits until all have been told of the loss, and returns how long
// before the end of their validity they had read it.
func lossMargins(t *testing.T, all []*follower) (margins []time.Duration) {
	t.Helper()
	for _, f := range all {
		lost := f.await("lost", 20*time.Second)
		until := f.lastHeld().until()
		margins = append(margins, until.Sub(lost.at))
		if lost.JSON.Cause != string(locker.CauseExpired) || lost.until() != until {
			t.Errorf("%s: lost by %q until %d, want expired until %d", f.key, lost.JSON.Cause, lost.until(), until)
		}
	}
	return margins
}

func TestALossIsOnTheWireBeforeValidityEnds(t *testing.T) {
	t.Parallel()
	for fault, strike := range map[string]func(*redistest.Server, *faultproxy.Proxy){
		"Redis frozen": func(r *redistest.Server, _ *faultproxy.Proxy) { r.Stop() },
		"black hole": func(_ *redistest.Server, proxy *faultproxy.Proxy) {
			proxy.SetRule(func(faultproxy.Command) faultproxy.Action { return faultproxy.Action{BlackHole: true} })
			proxy.SetConnect(func(int) faultproxy.Connect { return faultproxy.ConnectBlackHole })
		},
		"Redis killed": func(r *redistest.Server, _ *faultproxy.Proxy) { r.Kill() },
	} {
		for _, ttl := range []string{"1s", "3s", "8s"} {
			t.Run(fault+", TTL "+ttl, func(t *testing.T) {
				t.Parallel()
				inTime(t, func(prefix string) time.Duration {
					const locks = 10
					r := redistest.Start(t)
					p, proxy := through(t, r)
					var all []*follower
					for i := range locks {
						bound := p.bindHeld(prefix+fmt.Sprint("k", i), "ttl="+ttl)
						all = append(all, bound, p.watch(bound.key))
					}
					for _, f := range all {
						if _, err := f.awaitErr("renewed", 10*time.Second); err != nil {
							t.Log(err) // lost before that
							return 0
						}
					}
					strike(r, proxy)
					margins := lossMargins(t, all)
					t.Logf("read before the end: %s", spread(margins)) // the worst is the first
					for i := range locks {
						p.GET(prefix+fmt.Sprint("k", i)).Want(t, http.StatusGone, "lost")
					}
					for _, f := range all {
						f.await("", 5*time.Second)
					}
					return margins[0]
				})
			})
		}
	}
}

func TestAStopShorterThanTheLeaseLosesNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	f := p.bindHeld("k", "ttl=4s")
	f.await("renewed", 5*time.Second)
	for range 2 {
		before := f.lastHeld()
		p.Stop()
		time.Sleep(1500 * time.Millisecond)
		p.Cont()
		eventually(t, 5*time.Second, "it is renewed again", func() bool { return f.lastHeld().until() > before.until() })
	}
	if held := p.GET("k").Want(t, http.StatusOK, ""); held.JSON.Fence != f.lastHeld().JSON.Fence {
		t.Errorf("it is grant %d", held.JSON.Fence)
	}
	f.close()
	awaitFree(t, r, "k", 2*time.Second)
}

// A sidecar that is stopped for most of a lease whose Redis has gone has little
// time left to tell of the loss.
func TestASidecarWokenBeforeValidityEndsTellsOfTheLossInTime(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for n := range 4 {
		p, proxy := through(t, r)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			inTime(t, func(prefix string) time.Duration {
				proxy.SetRule(nil)
				proxy.SetConnect(nil)
				proxy.Cut()
				p.awaitReady()
				key := prefix + fmt.Sprint("k", n)
				all := []*follower{p.bindHeld(key, "ttl=3s"), nil}
				all[0].await("renewed", 5*time.Second)
				all[1] = p.watch(key)
				all[1].await("renewed", 5*time.Second)
				proxy.SetRule(func(faultproxy.Command) faultproxy.Action { return faultproxy.Action{BlackHole: true} })
				proxy.SetConnect(func(int) faultproxy.Connect { return faultproxy.ConnectBlackHole })
				p.Stop()
				before := 120*time.Millisecond + time.Duration(n)*50*time.Millisecond // 0 to 150 ms more than the lead and its way
				time.Sleep(all[0].lastHeld().until().Sub(locker.BootTime()) - before)
				p.Cont()
				t.Logf("woken %v before the end", before)
				margins := lossMargins(t, all)
				return min(margins[0], margins[1])
			})
		})
	}
}

func TestASidecarWokenAfterValidityHasEndedTellsOfTheLossFirst(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, other := on(t, r), on(t, r)
	const locks = 10
	for round := range 3 {
		var all []*follower
		for i := range locks {
			all = append(all, p.bindHeld(fmt.Sprint("k", round, "-", i), "ttl=1s"))
		}
		time.Sleep(time.Duration(100*round) * time.Millisecond)
		p.Stop()
		time.Sleep(20 * time.Millisecond)
		told := make([]int, locks)
		for i, f := range all {
			awaitFree(t, r, f.key, 5*time.Second)
			told[i] = len(f.heard())
			if i%2 == 0 {
				other.POST(f.key, "ttl=60s").Finally(t, http.StatusCreated, "held")
			}
		}
		woken := locker.BootTime()
		p.Cont()
		for i, f := range all {
			lost := f.await("lost", 5*time.Second)
			first := f.heard()[told[i]]
			if first.kind != "lost" || lost.JSON.ValidForMS != 0 || lost.JSON.Cause != string(locker.CauseExpired) {
				t.Errorf("%s: the first event is %s %s", f.key, first.kind, first.Body)
			}
			if until := f.lastHeld().until(); lost.until() != until {
				t.Errorf("%s: the loss is told to be valid until %d, which was %d", f.key, lost.until(), until)
			}
			if i == 0 {
				t.Logf("told %v after it was woken", lost.at.Sub(woken))
			}
			f.await("", 5*time.Second)
			if i%2 == 0 {
				if pttl := r.PTTL("lock:" + f.key); pttl < 40*time.Second {
					t.Errorf("%s: the other's lock has PTTL %v", f.key, pttl)
				}
			}
		}
	}
}

func TestLossByTheStoreIsToldWithItsCause(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, other := on(t, r), on(t, r)
	recordOf(t).storeLost("gone", "taken")
	// The first renewal, after a third of the TTL, must find what is made here.
	gone, taken := p.bindHeld("gone", "ttl=6s"), p.bindHeld("taken", "ttl=6s")
	for _, f := range []*follower{gone, taken} {
		r.Do("DEL", "lock:"+f.key)
	}
	other.POST("taken", "ttl=60s").Finally(t, http.StatusCreated, "held")
	for f, cause := range map[*follower]locker.Cause{gone: locker.CauseGone, taken: locker.CauseTaken} {
		if lost := f.await("lost", 10*time.Second); lost.JSON.Cause != string(cause) || lost.JSON.ValidForMS != 0 {
			t.Errorf("%s: %s", f.key, lost.Body)
		}
	}
	inTime(t, func(prefix string) time.Duration {
		limited := p.bindHeld(prefix+"limited", "ttl=2s", "max_hold=2500ms")
		lost := limited.await("lost", 10*time.Second)
		if lost.JSON.Cause != string(locker.CauseMaxHold) {
			t.Logf("limited: %s", lost.Body) // expired before, or else
			return 0
		}
		return limited.lastHeld().until().Sub(lost.at)
	})
}

// A caller that is stopped, and so reads nothing, holds up nobody else. Its lock
// ends when what it was told last is over: it may go on at any time.
func TestACallerThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, other := on(t, r, "LOG_LEVEL=info"), on(t, r)
	deaf := p.bindByCurl("deaf", "ttl=6s")
	deaf.await("held", 10*time.Second)
	quick := p.bindHeld("quick", "ttl=4s")
	if err := deaf.curl.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waiter := other.bind("deaf", "ttl=60s", "wait=60s")
	w := p.wire()
	began := time.Now()
	for len(p.lines("a caller does not take in what its bound connection tells: its lock is not renewed any more")) == 0 {
		if time.Since(began) > 45*time.Second {
			t.Fatal("its lock is renewed for ever")
		}
		for range 100 { // each is an event
			a, err := w.exchange(request(http.MethodPatch, "/locks/deaf", "ttl=6s"))
			if err != nil || a.Status != http.StatusOK && !a.Is(http.StatusServiceUnavailable, "extend_unconfirmed") && !a.Is(http.StatusServiceUnavailable, "store_unavailable") {
				t.Fatalf("%v, %v", a, err)
			}
		}
	}
	t.Logf("it was not renewed any more after %v", time.Since(began).Round(time.Millisecond))
	until := locker.Instant(p.GET("deaf").Want(t, http.StatusOK, "").JSON.ValidUntilMS * 1e6)
	if granted := waiter.await("held", 20*time.Second); granted.at < until || granted.at > until.Add(pollBound) {
		t.Errorf("another had it %v after the end of its validity", granted.at.Sub(until))
	}
	eventually(t, 30*time.Second, "the other stream is told of four renewals", func() bool {
		renewed := 0
		for _, h := range quick.heard() {
			switch h.kind {
			case "renewed":
				renewed++
			case "held", "at_risk": // once the store was slow, which is not the fault of the one who does not read
			default:
				t.Fatalf("the other stream is told of %s", h.kind)
			}
		}
		return renewed >= 4
	})
	waiter.close()
	quick.close()
}
