package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
	"github.com/locksidecar/locksidecar/internal/locker/redis"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// ofServers returns a quorum of real servers. It is closed when the test ends.
func ofServers(t testing.TB, servers []*redistest.Server, prefix string, config quorum.Config) *quorum.Backend {
	t.Helper()
	for _, s := range servers {
		member, err := redis.New(redis.Config{Addrs: []redis.Address{redis.TCP(s.Addr())}, KeyPrefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(member.Close)
		_ = member.Warm(t.Context()) // it may be down
		config.Members = append(config.Members, quorum.Member{Name: s.Addr(), Member: member})
	}
	b, err := quorum.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// notShort skips a test on real servers in short mode.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers take long")
	}
}

func TestAQuorumOfRealServersIsABackend(t *testing.T) {
	notShort(t)
	servers := redistest.Config{}.StartMany(t, 3)
	var cases atomic.Int64
	lockertest.Run(t, func(t *testing.T) lockertest.Harness {
		prefix := fmt.Sprintf("case%d:", cases.Add(1))
		// The machine may be busy, and that is not what the suite is about.
		b := ofServers(t, servers, prefix, quorum.Config{NodeTimeout: 5 * time.Second})
		name := func(key locker.Key) string { return prefix + string(key) }
		each := func(do func(*redistest.Server)) {
			for _, s := range servers {
				do(s)
			}
		}
		return lockertest.Harness{
			Backend: settled{b},
			Now:     locker.BootTime,
			Splits:  true,
			Figures: figures.Redlock,
			CurrentValue: func(key locker.Key) (string, bool) {
				return majority(servers, func(s *redistest.Server) (string, bool) { return s.Get(name(key)) })
			},
			PTTL: func(key locker.Key) time.Duration {
				var ttls []time.Duration
				each(func(s *redistest.Server) { ttls = append(ttls, max(0, s.PTTL(name(key)))) })
				slices.Sort(ttls)
				return ttls[len(ttls)/2]
			},
			Put: func(key locker.Key, value string, ttl time.Duration) {
				each(func(s *redistest.Server) {
					if ttl == 0 {
						s.Do("SET", name(key), value)
					} else {
						s.Do("SET", name(key), value, "PX", ttl.Milliseconds())
					}
				})
			},
			Delete: func(key locker.Key) { each(func(s *redistest.Server) { s.Do("DEL", name(key)) }) },
			Wipe: func() {
				each(func(s *redistest.Server) {
					for _, key := range s.Keys(prefix + "*") {
						s.Do("DEL", key)
					}
				})
			},
		}
	})
}

// cycle takes a lock, renews it and gives it back, and returns how long each
// of that took.
func cycle(b *quorum.Backend, key locker.Key) (took []time.Duration, err error) {
	const storeTimeout = 2 * time.Second
	began := time.Now()
	step := func(do func(ctx context.Context) error) {
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		began := time.Now()
		err = do(ctx)
		took = append(took, time.Since(began))
	}
	soon := func() locker.Instant { return locker.BootTime().Add(storeTimeout) }
	var c locker.Claim
	var grant locker.Grant
	// A claim of a moment ago may only now have come to a server, from which it is
	// about to be taken back. Whoever meets it asks again, as the Locker does.
	for again := true; again; {
		again = false
		step(func(ctx context.Context) error {
			c = locker.Claim{Key: key, Token: locker.NewToken("pod"), Holder: "pod", Keep: time.Minute, NotAfter: soon()}
			grant, err = b.Acquire(ctx, c)
			again = errors.Is(err, locker.ErrSplitVote) && time.Since(began) < storeTimeout
			if again {
				return nil
			}
			return err
		})
	}
	// A renewal that comes so soon may overtake the claim at a server that had
	// not answered to it; it is repeated, as the watchdog does.
	for range 3 {
		renewed := false
		step(func(ctx context.Context) error {
			err := b.Renew(ctx, []locker.Renewal{{Key: key, Token: c.Token, Keep: c.Keep, NotAfter: soon(), Fence: grant.Fence}})[0].Err
			var open *locker.StoreError
			renewed = !errors.As(err, &open)
			if renewed {
				return err
			}
			return nil
		})
		if renewed || err != nil {
			break
		}
	}
	failed := err
	err = nil
	step(func(ctx context.Context) error {
		return b.Release(ctx, []locker.Surrender{{Key: key, Token: c.Token, Holder: c.Holder}})[0].Err
	})
	return took, errors.Join(failed, err)
}

// A minority may be dead, frozen, or come and go: the rest is answered by a
// majority, without a mistake, and nobody waits for the sum of timeouts. By how
// much it is slower is measured in bench; here is only that it is no timeout's
// length, give or take what a busy machine adds.
func TestAMinorityOfRealServersThatFailsHoldsUpNobody(t *testing.T) {
	notShort(t)
	for _, n := range []int{3, 5} {
		for how, fail := range map[string]func(s *redistest.Server, stop <-chan struct{}){
			"dead":   func(s *redistest.Server, _ <-chan struct{}) { s.Kill() },
			"frozen": func(s *redistest.Server, _ <-chan struct{}) { s.Stop() },
			"flapping": func(s *redistest.Server, stop <-chan struct{}) {
				for {
					s.Stop()
					pause := time.After(40 * time.Millisecond)
					select {
					case <-stop:
						s.Cont()
						return
					case <-pause:
					}
					s.Cont()
					time.Sleep(20 * time.Millisecond)
				}
			},
		} {
			t.Run(fmt.Sprint(n, " ", how), func(t *testing.T) {
				servers := redistest.Config{}.StartMany(t, n)
				b := ofServers(t, servers, "lock:", quorum.Config{NodeTimeout: quorum.DefaultNodeTimeout})
				for range 20 {
					if _, err := cycle(b, "k"); err != nil {
						t.Fatal("all are well: ", err)
					}
				}
				minority := servers[:n/2]
				stop, done := make(chan struct{}), make(chan struct{})
				var all []time.Duration
				var failures []error
				go func() {
					defer close(done)
					for i := range 60 {
						took, err := cycle(b, locker.Key(fmt.Sprint("k", i%7)))
						all = append(all, took...)
						if err != nil {
							failures = append(failures, err)
						}
					}
				}()
				if how == "flapping" {
					go func() { <-done; close(stop) }()
					for _, s := range minority[1:] {
						s.Stop() // the rest of it
					}
					fail(minority[0], stop) // signals come from the test's goroutine
				} else { // in the midst of it
					for _, s := range minority {
						fail(s, stop)
					}
				}
				<-done
				for _, s := range minority {
					if how != "dead" {
						s.Cont()
					}
				}
				slices.Sort(all)
				p50, p99 := all[len(all)/2], all[len(all)*99/100]
				t.Logf("p50 %v, p99 %v, longest %v", p50, p99, all[len(all)-1])
				const unevenness = 500 * time.Millisecond
				if len(failures) > 0 || p99 > quorum.DefaultNodeTimeout+unevenness {
					t.Errorf("p99 %v, want at most %v; %d failures: %v", p99, quorum.DefaultNodeTimeout, len(failures), errors.Join(failures...))
				}
			})
		}
	}
}

// What was given back while a server did not answer is given back there once it
// does, and what it granted in vain.
func TestAFrozenServerThatGoesOnKeepsNothing(t *testing.T) {
	notShort(t)
	servers := redistest.Config{}.StartMany(t, 3)
	b := ofServers(t, servers, "lock:", quorum.Config{})
	if _, err := cycle(b, "warm"); err != nil {
		t.Fatal(err)
	}
	servers[2].Stop()
	for i := range 30 {
		if _, err := cycle(b, locker.Key(fmt.Sprint("k", i))); err != nil {
			t.Error(err)
		}
	}
	servers[2].Cont()
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := servers[2].Keys("lock:k*")
		if len(left) == 0 && b.Owed() == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d locks are left there, %d owed", len(left), b.Owed())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, s := range servers[:2] {
		if left := s.Keys("lock:k*"); len(left) > 0 {
			t.Errorf("%d locks are left at one that always answered", len(left))
		}
	}
}
