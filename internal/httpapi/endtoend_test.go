package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// unwatched renews nothing: these locks outlast their tests.
type unwatched struct{}

func (unwatched) Watch(locker.Beat)     {}
func (unwatched) Forget(locker.GrantID) {}

// sidecar is a real Locker behind the API.
type sidecar struct {
	*locker.Locker
	t       *testing.T
	network string
	address string
	url     string
	client  *http.Client
}

func newSidecar(t *testing.T, network string, backend locker.Backend, alter ...func(*Server)) *sidecar {
	t.Helper()
	return newSidecarAt(t, network, backend, locker.BootTime, alter...)
}

// newSidecarAt is newSidecar with a clock of its own.
func newSidecarAt(t *testing.T, network string, backend locker.Backend, now locker.Clock, alter ...func(*Server)) *sidecar {
	t.Helper()
	l, err := locker.New(locker.Config{Holder: "shop/web-0", StoreTimeout: patience, Now: now}, backend, unwatched{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	s := &sidecar{Locker: l, t: t, network: network, url: "http://localhost"}
	cfg := testConfig(l)
	cfg.Now = now
	server := New(cfg)
	for _, f := range alter {
		f(server)
	}
	s.address = serveOn(t, network, server)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.address)
	}}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

// ask sends one request and returns the status and the answer's members.
func (s *sidecar) ask(method, target string) (int, map[string]any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+target, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var members map[string]any
	if response.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(response.Body).Decode(&members); err != nil {
			s.t.Fatal(err)
		}
	}
	return response.StatusCode, members
}

func TestTheLifeOfALock(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		one, two := newSidecar(t, network, store), newSidecar(t, network, store)
		var fence string
		for _, step := range []struct {
			at             *sidecar
			method, target string
			status         int
			member, value  string
		}{
			{one, "POST", "/locks/k?owner=w1&note=n&ttl=30s", 201, "owner", "w1"},
			{one, "POST", "/locks/k?owner=w1", 200, "note", "n"},
			{one, "POST", "/locks/k?owner=w1&ttl=29s", 409, "code", "parameter_mismatch"},
			{one, "POST", "/locks/k?owner=w2", 409, "held_here", "true"},
			{two, "POST", "/locks/k", 409, "held_here", "false"},
			{two, "GET", "/locks/k", 404, "state", "held"},
			{one, "GET", "/locks/k", 200, "state", "held"},
			{one, "GET", "/locks/k?owner=w2", 409, "code", "owner_mismatch"},
			{one, "PATCH", "/locks/k?owner=w1&ttl=1m&note=m", 200, "ttl_ms", "60000"},
			{one, "DELETE", "/locks/k", 409, "code", "owner_mismatch"},
			{one, "DELETE", "/locks/k?owner=w1", 204, "", ""},
			{one, "DELETE", "/locks/k?owner=w1", 404, "state", "free"},
			{two, "POST", "/locks/k", 201, "state", "held"},
			{two, "DELETE", "/locks/k?fencing_token=FENCE", 204, "", ""},
			{two, "POST", "/locks/k?min_hold=1h", 201, "min_hold_ms", "3.6e+06"},
			{two, "DELETE", "/locks/k", 204, "", ""},
			{one, "POST", "/locks/k", 409, "state", "min_hold"},
			{one, "POST", "/locks/l", 201, "state", "held"},
			{one, "DELETE", "/locks?all=true", 200, "released", "[l]"},
			{one, "POST", "/drain", 204, "", ""},
			{one, "POST", "/locks/m", 503, "code", "draining"},
		} {
			target := strings.Replace(step.target, "FENCE", fence, 1)
			status, members := step.at.ask(step.method, target)
			got := fmt.Sprint(members[step.member])
			if status != step.status || (step.member != "" && got != step.value) {
				t.Fatalf("%s %s: %d %v, want %d and %s %s", step.method, target, status, members, step.status, step.member, step.value)
			}
			if f, ok := members["fencing_token"].(float64); ok {
				fence = fmt.Sprintf("%.0f", f)
			}
		}
	})
}

// stopped are the Locks of a process that is stopped for a while as soon as it
// was granted one.
type stopped struct {
	Locks
	wake func()
}

func (s stopped) Acquire(ctx context.Context, r locker.Request) (locker.Status, bool, error) {
	st, repeated, err := s.Locks.Acquire(ctx, r)
	s.wake()
	return st, repeated, err
}

func TestAGrantIsNotToldOnceItIsOver(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		for _, target := range []string{"/locks/k", "/locks/k?wait=30s", "/locks/k?bind=connection"} {
			var asleep atomic.Int64
			now := func() locker.Instant { return locker.BootTime().Add(time.Duration(asleep.Load())) }
			l, err := locker.New(locker.Config{StoreTimeout: patience, Now: now}, memory.New(memory.Config{Now: now}), unwatched{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := testConfig(stopped{l, func() { asleep.Add(int64(time.Minute)) }})
			cfg.Now = now
			_, address := serve(t, network, cfg)
			c := dial(t, network, address)
			c.send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if body := c.answerStatus(503); !strings.Contains(body, "acquire_unresolved") {
				t.Errorf("%s: %s", target, body)
			}
		}
	})
}

func TestALostLockIsToldAtItsRelease(t *testing.T) {
	store := memory.New(memory.Config{})
	s := newSidecar(t, "tcp", store)
	s.ask("POST", "/locks/k")
	store.Delete("k")
	if status, members := s.ask("DELETE", "/locks/k"); status != 410 || members["cause"] != "gone" {
		t.Errorf("%d %v", status, members)
	}
}

// slow is a store whose grants take a while.
type slow struct {
	*memory.Backend
	mu     sync.Mutex
	random *rand.Rand
}

func (s *slow) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	s.mu.Lock()
	before, after := s.random.IntN(200), s.random.IntN(200)
	s.mu.Unlock()
	time.Sleep(time.Duration(before) * time.Microsecond)
	defer time.Sleep(time.Duration(after) * time.Microsecond)
	return s.Backend.Acquire(ctx, c)
}

// awaitFree waits until the store says that the key is free.
func awaitFree(t *testing.T, store locker.Inspector, key locker.Key, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		o, err := store.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if o.State == locker.OccupancyFree {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s after %s", key, o.State, within)
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitNobody waits until all that has been sent so far was served, and the
// connections over which it came are closed.
func (s *Server) awaitNobody(t *testing.T, network, address string) {
	t.Helper()
	last := dial(t, network, address)
	last.send(refused)
	last.answerStatus(http.StatusMethodNotAllowed) // those before it have been accepted
	_ = last.Conn.Close()
	for deadline := time.Now().Add(2 * patience); s.conns.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open", s.conns.open.Load())
		}
	}
}

func TestCallersThatLeaveAroundTheGrantLeaveTheKeyFree(t *testing.T) {
	const rounds = 300
	onEveryNetwork(t, func(t *testing.T, network string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		store := &slow{Backend: memory.New(memory.Config{}), random: rand.New(rand.NewPCG(seed, 2))}
		var server *Server
		s := newSidecar(t, network, store, func(s *Server) { server = s })
		key := func(i int) locker.Key { return locker.Key(fmt.Sprint("k", i)) }
		for i := range rounds {
			c := dial(t, network, s.address)
			c.send("POST /locks/" + string(key(i)) + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
			time.Sleep(time.Duration(random.IntN(800)) * time.Microsecond)
			if i%2 == 0 {
				c.abort()
			} else {
				_ = c.Conn.Close()
			}
		}
		server.awaitNobody(t, network, s.address)
		for i := range rounds {
			awaitFree(t, store, key(i), patience)
		}
		if st := s.Stats(); st.Held != 0 {
			t.Errorf("%d locks are still held", st.Held)
		}
	})
}

func TestADeleteWhoseCallerLeavesAtOnceIsCarriedOut(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		for i := range 50 {
			key := locker.Key(fmt.Sprint("k", i))
			if status, members := s.ask("POST", "/locks/"+string(key)); status != 201 {
				t.Fatal(status, members)
			}
			c := dial(t, network, s.address)
			c.send("DELETE /locks/" + string(key) + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
			_ = c.Conn.Close()
			awaitFree(t, store, key, patience)
		}
	})
}

func TestAGiveBackSparesAGrantThatAnotherAnswerHasTold(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s := newSidecar(t, network, memory.New(memory.Config{}))
		s.ask("POST", "/locks/k?owner=w")
		c := dial(t, network, s.address)
		c.send("POST /locks/k?owner=w HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.awaitUnread()
		_ = c.Conn.Close()
		s.client.CloseIdleConnections()
		if status, members := s.ask("GET", "/locks/k?owner=w"); status != 200 {
			t.Errorf("%d %v", status, members)
		}
	})
}

func TestAGuardedShutdownDropsWhatIsClearedAndSparesWhoIsStillConnected(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		connected, gone := dial(t, network, s.address), dial(t, network, s.address)
		connected.send("POST /locks/connected HTTP/1.1\r\nHost: localhost\r\n\r\n")
		connected.answerStatus(201)
		gone.send("POST /locks/gone HTTP/1.1\r\nHost: localhost\r\n\r\n")
		gone.answerStatus(201)
		_ = gone.Conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var over sync.WaitGroup
		over.Go(func() {
			defer cancel()
			for ctx.Err() == nil {
				if o, err := store.Inspect(ctx, "gone"); err == nil && o.State == locker.OccupancyFree {
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		counts := s.Locker.Shutdown(ctx, locker.ModeGuarded, patience)
		over.Wait()
		if counts.Dropped != 1 || counts.Left != 1 {
			t.Errorf("%+v, want one dropped and one left", counts)
		}
		if o, err := store.Inspect(t.Context(), "connected"); err != nil || o.State != locker.OccupancyHeld {
			t.Errorf("the connected caller's lock is %s, %v", o.State, err)
		}
	})
}
