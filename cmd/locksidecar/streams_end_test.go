package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// streamRounds is how often each end of a connection is tried; more for figures
// worth publishing.
func streamRounds(t testing.TB) int {
	n, err := strconv.Atoi(os.Getenv("STREAM_ROUNDS"))
	if err != nil {
		return 15
	}
	t.Logf("%d rounds", n)
	return n
}

// Others have the lock at once when the connection that it is bound to has
// ended, however that ends, whether they wait in this sidecar or in another.
func TestTheEndOfABoundConnectionPassesTheLockOnAtOnce(t *testing.T) {
	t.Parallel()
	for network, start := range map[string]func(testing.TB, ...string) *proc{"tcp": startSidecar, "unix": onSocket} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			p, other := start(t, "REDIS_ADDRS="+r.Addr(), "LOG_LEVEL=info"), on(t, r, "LOG_LEVEL=info")
			for way, leave := range waysToEnd {
				var here, elsewhere []time.Duration
				for i := range 2 * streamRounds(t) {
					holder := p.bindFor(way, "k", "ttl=60s", "wait=10s")
					held := holder.await("held", 10*time.Second)
					next, took := other, &elsewhere
					if i%2 == 1 {
						next, took = p, &here
					}
					waiter := next.bindFor("close", "k", "ttl=60s", "wait=30s")
					next.awaitWaiting(1)
					began := locker.BootTime()
					leave(holder)
					granted := waiter.await("held", 10*time.Second)
					*took = append(*took, granted.at.Sub(began))
					if granted.JSON.Fence <= held.JSON.Fence {
						t.Errorf("fence %d after %d", granted.JSON.Fence, held.JSON.Fence)
					}
					waiter.close()
				}
				t.Logf("%s: to a waiter elsewhere %s; here %s", way, spread(elsewhere), spread(here))
				for _, took := range [][]time.Duration{here, elsewhere} { // sorted by now
					if nine := took[max(0, len(took)*9/10-1)]; nine > atOnce {
						t.Errorf("%s: the next one had it after %v and more, one time in ten", way, nine)
					}
				}
			}
			awaitFree(t, r, "k", 10*time.Second)
			p.wantAllReleasedOnce()
		})
	}
}

// wantAllReleasedOnce fails the test unless the process has counted one release
// for every grant, and holds nothing.
func (p *proc) wantAllReleasedOnce() {
	p.t.Helper()
	var granted, released float64
	eventually(p.t, 5*time.Second, "every grant is released once", func() bool {
		granted, released = p.Metric(`locksidecar_acquires_total{result="granted"}`), 0
		for _, result := range locker.ReleaseResults {
			released += p.Metric(fmt.Sprintf("locksidecar_releases_total{result=%q}", result))
		}
		return granted == released && p.Metric("locksidecar_locks_held") == 0
	})
	if granted == 0 {
		p.t.Error("nothing was granted")
	}
}

func TestAThousandRandomCutsLeaveNothing(t *testing.T) {
	t.Parallel()
	for network, start := range map[string]func(testing.TB, ...string) *proc{"tcp": startSidecar, "unix": onSocket} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			const abreast, each, keys = 10, 100, 5
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := redistest.Start(t)
			p, other := start(t, "REDIS_ADDRS="+r.Addr(), "LOG_LEVEL=info"), on(t, r, "LOG_LEVEL=info")
			goroutines := p.Metric("go_goroutines")
			var workers sync.WaitGroup
			for n := range abreast {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				workers.Go(func() {
					for range each {
						at := p
						if random.IntN(4) == 0 {
							at = other
						}
						wait, patient := random.IntN(30), random.IntN(10) == 0 // or nothing would be granted where all is slow
						if patient {
							wait = 10_000
						}
						f := at.bind(fmt.Sprint("k", random.IntN(keys)), "ttl=60s", fmt.Sprintf("wait=%dms", wait))
						if f.conn == nil {
							t.Error(f.err)
							return
						}
						if patient {
							// Redis may be slow, and the first request not even be sent.
							if _, err := f.awaitErr("held", 20*time.Second); err != nil && !strings.Contains(err.Error(), "503 ") {
								t.Error(err)
							}
						}
						time.Sleep(time.Duration(random.IntN(15000)) * time.Microsecond)
						[]func(*follower){(*follower).close, (*follower).reset, (*follower).endSending}[random.IntN(3)](f)
						if random.IntN(2) == 0 {
							_ = f.conn.Close()
						} else {
							t.Cleanup(func() { _ = f.conn.Close() })
						}
					}
				})
			}
			workers.Wait()
			eventually(t, 10*time.Second, "every lock is free and nobody is in line", func() bool {
				return len(r.Keys("lock:k*")) == 0 && len(r.Keys("lock:#queue:*")) == 0
			})
			p.wantAllReleasedOnce()
			other.wantAllReleasedOnce()
			eventually(t, 10*time.Second, "no goroutine is left", func() bool { return p.Metric("go_goroutines") <= goroutines+10 })
		})
	}
}
