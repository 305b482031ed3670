package interop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredispool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/quorum"
	lockredis "github.com/locksidecar/locksidecar/internal/locker/redis"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// majority is several servers with locksidecar's quorum and redsync on them.
type majority struct {
	t       *testing.T
	servers []*redistest.Server
	quorum  *quorum.Backend
	redsync *redsync.Redsync
}

func onMajority(t *testing.T, n int) *majority {
	m := &majority{t: t, servers: redistest.Config{}.StartMany(t, n)}
	var members []quorum.Member
	var pools []redsyncredis.Pool
	for _, s := range m.servers {
		member, err := lockredis.New(lockredis.Config{Addrs: []lockredis.Address{lockredis.Unix(s.Socket())}, KeyPrefix: "lock:", StoreTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(member.Close)
		members = append(members, quorum.Member{Name: s.Addr(), Member: member})
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket(), MaxRetries: -1, DialerRetries: 1}) // by default a dead server takes a second
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredispool.NewPool(client))
	}
	q, err := quorum.New(quorum.Config{Members: members, NodeTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	m.quorum, m.redsync = q, redsync.New(pools...)
	return m
}

// we ask for the key and return how to give it back. It is held, or nobody has
// a majority, if the error is errHeld.
func (m *majority) we(ctx context.Context) (renew, leave func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := locker.Claim{Key: key, Token: locker.NewToken(pod), Holder: pod, Keep: long, NotAfter: locker.BootTime().Add(patience)}
	grant, err := m.quorum.Acquire(ctx, c)
	if held := (*locker.HeldError)(nil); errors.As(err, &held) || errors.Is(err, locker.ErrSplitVote) {
		err = errHeld
	}
	renew = func() error {
		return m.quorum.Renew(m.t.Context(), []locker.Renewal{
			{Key: key, Token: c.Token, Keep: long, NotAfter: locker.BootTime().Add(patience), Fence: grant.Fence},
		})[0].Err
	}
	leave = func() error {
		return m.quorum.Release(m.t.Context(), []locker.Surrender{{Key: key, Token: c.Token, Holder: pod}})[0].Err
	}
	return renew, leave, err
}

// they ask for the name.
func (m *majority) they(ctx context.Context) (extend, leave func() error, err error) {
	mutex := m.redsync.NewMutex(name, redsync.WithExpiry(long))
	err = mutex.TryLockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		err = errHeld
	}
	outcome := func(ok bool, err error) error {
		if ok { // at a majority; the rest may be down
			return nil
		}
		return errors.Join(errNotHeld, err)
	}
	return func() error { return outcome(mutex.ExtendContext(m.t.Context())) },
		func() error { return outcome(mutex.UnlockContext(m.t.Context())) }, err
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// With all servers, and with a minority down.
func withMajorities(t *testing.T, test func(t *testing.T, m *majority)) {
	for _, n := range []int{3, 5} {
		for down := range n/2 + 1 {
			t.Run(fmt.Sprintf("%d of %d down", down, n), func(t *testing.T) {
				m := onMajority(t, n)
				for _, s := range m.servers[:down] {
					s.Kill()
				}
				test(t, m)
			})
		}
	}
}

func TestTheirMajorityKeepsOursOutUntilTheyUnlock(t *testing.T) {
	withMajorities(t, func(t *testing.T, m *majority) {
		extend, unlock, err := m.they(t.Context())
		must(t, "their lock", err)
		for range 3 {
			if _, _, err := m.we(t.Context()); !errors.Is(err, errHeld) {
				t.Fatalf("we ask for what is held: %v, want %v", err, errHeld)
			}
		}
		o, err := m.quorum.Inspect(t.Context(), key)
		must(t, "inspect", err)
		wantNameless(t, o)
		must(t, "their extension", extend())
		must(t, "their unlock", unlock())
		renew, leave, err := m.we(t.Context())
		must(t, "our lock", err)
		must(t, "our renewal", renew())
		must(t, "our release", leave())
	})
}

func TestOurMajorityKeepsTheirsOutUntilWeRelease(t *testing.T) {
	withMajorities(t, func(t *testing.T, m *majority) {
		renew, leave, err := m.we(t.Context())
		must(t, "our lock", err)
		for range 3 {
			if _, _, err := m.they(t.Context()); !errors.Is(err, errHeld) {
				t.Fatalf("they ask for what is held: %v, want %v", err, errHeld)
			}
		}
		must(t, "our renewal", renew())
		must(t, "our release", leave())
		_, unlock, err := m.they(t.Context())
		must(t, "their lock", err)
		must(t, "their unlock", unlock())
	})
}

// A lock that has been left behind at a minority is nobody's, whose ever it was.
func TestWhatOnlyAMinorityHasKeepsNobodyOut(t *testing.T) {
	m := onMajority(t, 5)
	for _, s := range m.servers[:2] {
		s.Do("SET", name, "theirs, left behind", "PX", long.Milliseconds())
	}
	_, leave, err := m.we(t.Context())
	must(t, "our lock", err)
	must(t, "our release", leave())
	for _, s := range m.servers[:2] {
		if value, _ := s.Get(name); value != "theirs, left behind" {
			t.Errorf("what was left behind has become %q", value)
		}
	}
	_, unlock, err := m.they(t.Context())
	must(t, "their lock", err)
	must(t, "their unlock", unlock())
}

func TestNobodyIsInsideAMajorityTogetherWithAnother(t *testing.T) {
	m := onMajority(t, 3)
	const workers, turns = 3, 15 // of each kind
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	var inside atomic.Int32
	compete := func(pause time.Duration, try func(context.Context) (renew, leave func() error, err error)) {
		for done := 0; done < turns && ctx.Err() == nil; {
			renew, leave, err := try(ctx)
			if errors.Is(err, errHeld) {
				time.Sleep(pause)
				continue
			}
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("lock: %v", err)
				}
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d are inside", n)
			}
			if err := renew(); err != nil {
				t.Errorf("renew: %v", err)
			}
			inside.Add(-1)
			if err := leave(); err != nil {
				t.Errorf("unlock: %v", err)
			}
			done++
		}
	}
	var wg sync.WaitGroup
	for i := range workers {
		// Each pauses for another time, so that votes are not split for ever.
		wg.Go(func() { compete(time.Duration(3+2*i)*time.Millisecond, m.we) })
		wg.Go(func() { compete(time.Duration(4+2*i)*time.Millisecond, m.they) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.Error("not everybody has had their turns in time")
	}
}
