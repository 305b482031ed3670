package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

const bindPost = "POST /locks/k?bind=connection HTTP/1.1\r\nHost: localhost\r\n\r\n"

// sse is one server-sent event as a client reads it.
type sse struct {
	kind string // "" for a comment
	data map[string]any
}

// eventStream is a client's side of a stream.
type eventStream struct {
	*client
	response *http.Response
	lines    *bufio.Reader
}

// events reads the head of an answer that must be a stream.
func (c *client) events(status int) *eventStream {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if response.StatusCode != status || response.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(response.Body)
		c.t.Fatalf("the answer is %d %v: %s", response.StatusCode, response.Header, body)
	}
	return &eventStream{c, response, bufio.NewReader(response.Body)}
}

// read reads one event or comment; io.EOF at the end.
func (s *eventStream) read() (e sse, err error) {
	_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); {
		case line == "":
			return e, nil
		case field == "event":
			e.kind = value
		case field == "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				return e, fmt.Errorf("%w in %q", err, value)
			}
		case field != "":
			return e, fmt.Errorf("unexpected line %q", line)
		}
	}
}

// want reads one event, or a comment if kind is "", and passes over comments
// before an event.
func (s *eventStream) want(kind string) map[string]any {
	s.t.Helper()
	e, err := s.read()
	for err == nil && e.kind == "" && kind != "" {
		e, err = s.read()
	}
	if err != nil || e.kind != kind {
		s.t.Fatalf("got %v, %v, want %s", e, err, kind)
	}
	for _, member := range []string{"key", "fencing_token", "valid_for_ms", "valid_until_boottime_ms"} {
		if _, ok := e.data[member]; !ok && kind != "" {
			s.t.Errorf("%s lacks %s: %v", kind, member, e.data)
		}
	}
	return e.data
}

func (s *eventStream) wantEnd() {
	s.t.Helper()
	if e, err := s.read(); !errors.Is(err, io.EOF) {
		s.t.Fatalf("got %v, %v, want the end", e, err)
	}
}

func (s *eventStream) fence() locker.Fence {
	s.t.Helper()
	var fence locker.Fence
	if _, err := fmt.Sscan(s.response.Header.Get(fenceHeader), &fence); err != nil {
		s.t.Fatal(err)
	}
	return fence
}

// extend has the lock renewed, so that there is something to tell.
func (s *sidecar) extend(key locker.Key) {
	s.t.Helper()
	if _, err := s.Extend(s.t.Context(), key, locker.Handle{}, locker.Changes{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestABoundLockLivesAsLongAsItsConnection(t *testing.T) {
	spellings := map[string]string{
		"at once":      bindPost,
		"waiting":      "POST /locks/k?wait=10s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"bind\":\"connection\"}",
		"chunked":      "POST /locks/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nf\r\nbind=connection\r\n0\r\n\r\n",
		"1.0":          "POST /locks/k?bind=connection HTTP/1.0\r\nHost: localhost\r\n\r\n",
		"1.0, waiting": "POST /locks/k?bind=connection&wait=10s HTTP/1.0\r\nHost: localhost\r\n\r\n",
	}
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		for spelling, request := range spellings {
			for way, leave := range waysToLeave {
				promptly(t, spelling+", "+way+": freeing it", atOnce, func() time.Duration {
					c := dial(t, network, s.address)
					c.send(request)
					events := c.events(http.StatusCreated)
					held := events.want("held")
					if held["state"] != "held" || held["bind"] != "connection" || held["renew"] != true || held["ttl_ms"] != 30000.0 ||
						locker.Fence(held["fencing_token"].(float64)) != events.fence() {
						t.Errorf("%s: held tells %v", spelling, held)
					}
					for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"} {
						if got := events.response.Header.Get(name); got != want {
							t.Errorf("%s: %s is %q, want %q", spelling, name, got, want)
						}
					}
					if !events.response.Close {
						t.Errorf("%s: the connection is said to go on", spelling)
					}
					s.extend("k")
					if renewed := events.want("renewed"); renewed["valid_until_boottime_ms"].(float64) < held["valid_until_boottime_ms"].(float64) {
						t.Errorf("%s: renewed %v", spelling, renewed)
					}
					began := time.Now()
					leave(c)
					awaitFree(t, store, "k", patience)
					return time.Since(began)
				})
			}
		}
	})
}

func TestAStreamStartsAtTheGrantAndRefusalsAreProblems(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s := newSidecar(t, network, memory.New(memory.Config{}), detachAtOnce)
		holder := dial(t, network, s.address)
		holder.send(bindPost)
		first := holder.events(http.StatusCreated)
		first.want("held")

		refused := dial(t, network, s.address)
		refused.send("POST /locks/k?bind=connection&wait=20ms HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		if response, body := refused.answer(); response.StatusCode != 409 || response.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, "wait_timeout") {
			t.Errorf("in vain: %d %s", response.StatusCode, body)
		}
		// The connection of one who was refused goes on.
		refused.send("POST /locks/k?bind=connection HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n")
		if response, body := refused.answer(); response.StatusCode != 409 || !strings.Contains(body, "code='held'") {
			t.Errorf("plain: %d %s", response.StatusCode, body)
		}
		refused.send("POST /locks/k?bind=connection&renew=false HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, body := refused.answer(); !strings.Contains(body, "invalid_bind") {
			t.Errorf("not renewed: %s", body)
		}

		waiter := dial(t, network, s.address)
		waiter.send("POST /locks/k?bind=connection&wait=30s HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n")
		for s.Stats().Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = holder.Conn.Close()
		second := waiter.events(http.StatusCreated)
		second.want("held")
		if second.fence() <= first.fence() {
			t.Errorf("fence %d after %d", second.fence(), first.fence())
		}
	})
}

func TestAWatcherIsToldAndOwnsNothing(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		const get = "GET /locks/k?owner=w1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
		nobody := dial(t, network, s.address)
		nobody.send(get)
		nobody.answerStatus(http.StatusNotFound)
		s.ask("POST", "/locks/k?owner=w1")
		nobody.send(strings.ReplaceAll(get, "w1", "w2"))
		nobody.answerStatus(http.StatusConflict)
		nobody.send(strings.Replace(get, "GET", "HEAD", 1))
		_ = nobody.SetReadDeadline(time.Now().Add(5 * time.Second))
		if head, err := http.ReadResponse(nobody.r, &http.Request{Method: http.MethodHead}); err != nil || head.StatusCode != http.StatusOK {
			t.Errorf("HEAD: %v, %v", head, err)
		}

		one, two := dial(t, network, s.address), dial(t, network, s.address)
		one.send(get)
		two.send(get)
		first, second := one.events(http.StatusOK), two.events(http.StatusOK)
		if held := first.want("held"); held["bind"] != "none" || held["held_for_ms"] == nil {
			t.Errorf("held tells %v", held)
		}
		second.want("held")
		_ = two.Conn.Close()
		s.extend("k")
		first.want("renewed")
		s.Drain()
		first.want("draining")
		if status, _ := s.ask("DELETE", "/locks/k?owner=w1"); status != http.StatusNoContent {
			t.Errorf("status %d", status)
		}
		if released := first.want("released"); released["valid_for_ms"] != 0.0 {
			t.Errorf("released tells %v", released)
		}
		first.wantEnd()
	})
}

func TestALossIsTheLastEvent(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		for cause, lose := range map[string]func(){
			"gone":    func() { store.Delete("k"); _, _ = s.Extend(t.Context(), "k", locker.Handle{}, locker.Changes{}) },
			"revoked": func() { s.ask("DELETE", "/locks?all=true") },
			"forced":  func() { s.ask("DELETE", "/locks/k?force=true") },
		} {
			c := dial(t, network, s.address)
			c.send(bindPost)
			events := c.events(http.StatusCreated)
			events.want("held")
			lose()
			lost := events.want("lost")
			if got := lost["cause"]; got != cause && (cause != "forced" || got != "revoked") || lost["lost_at"] == nil {
				t.Errorf("%s: lost tells %v", cause, lost)
			}
			events.wantEnd()
			if status, members := s.ask("GET", fmt.Sprint("/locks/k?fencing_token=", events.fence())); status != http.StatusGone || members["cause"] != lost["cause"] {
				t.Errorf("%s: GET says %d %v", cause, status, members)
			}
			awaitFree(t, store, "k", patience)
		}
	})
}

// skewedClock is the boot clock, and leaps when the machine was suspended. It can
// be stopped, for what must not depend on when this process is run.
type skewedClock struct{ by, stopped atomic.Int64 }

func (c *skewedClock) now() locker.Instant {
	if at := c.stopped.Load(); at != 0 {
		return locker.Instant(at)
	}
	return locker.BootTime().Add(time.Duration(c.by.Load()))
}

func (c *skewedClock) leap(d time.Duration) { c.by.Add(int64(d)) }

func TestAStreamNoticesThatTheMachineWasSuspended(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		clock := new(skewedClock)
		s := newSidecarAt(t, network, memory.New(memory.Config{Now: clock.now}), clock.now)
		c := dial(t, network, s.address)
		c.send(bindPost)
		events := c.events(http.StatusCreated)
		held := events.want("held")
		clock.leap(20 * time.Second)
		events.want("at_risk")
		clock.stopped.Store(int64(time.Duration(held["valid_until_boottime_ms"].(float64))*time.Millisecond - 249*time.Millisecond))
		lost := events.want("lost")
		if left := held["valid_until_boottime_ms"].(float64) - float64(clock.now().Milliseconds()); left <= 0 || lost["cause"] != "expired" {
			t.Errorf("lost %v, %v ms before the end", lost, left)
		}
	})
}

func TestAWokenStreamSendsTheLossFirst(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		clock := new(skewedClock)
		s := newSidecarAt(t, network, memory.New(memory.Config{Now: clock.now}), clock.now)
		c := dial(t, network, s.address)
		c.send(bindPost)
		events := c.events(http.StatusCreated)
		events.want("held")
		clock.leap(time.Hour) // with it, comments and at_risk have become due
		if lost, err := events.read(); lost.kind != "lost" || lost.data["valid_for_ms"] != 0.0 {
			t.Errorf("the first is %v, %v", lost, err)
		}
	})
}

func TestACommentComesEveryTenSeconds(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		clock := new(skewedClock)
		s := newSidecarAt(t, network, memory.New(memory.Config{Now: clock.now}), clock.now)
		c := dial(t, network, s.address)
		c.send("POST /locks/k?bind=connection&ttl=1h HTTP/1.1\r\nHost: localhost\r\n\r\n")
		events := c.events(http.StatusCreated)
		events.want("held")
		for range 5 {
			clock.leap(commentEvery)
			events.want("")
		}
		s.extend("k")
		events.want("renewed") // and nothing between
	})
}

func TestWhatIsSentBehindARequestForAStreamIsNotAnswered(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		const post = "POST /locks/other HTTP/1.1\r\nHost: localhost\r\n\r\n"
		c := dial(t, network, s.address)
		c.send(bindPost + post) // pipelined
		events := c.events(http.StatusCreated)
		events.want("held")
		c.send(post + "nonsense")
		s.extend("k")
		events.want("renewed")
		if s.Holds("other") {
			t.Error("a request behind it was carried out")
		}
		c.closeWrite() // hidden behind what was sent
		awaitFree(t, store, "k", patience)

		flood := dial(t, network, s.address)
		flood.send(bindPost)
		flood.events(http.StatusCreated).want("held")
		_, _ = io.WriteString(flood, strings.Repeat("x", 3*mostUnasked)) // may be cut short
		awaitFree(t, store, "k", patience)
	})
}

func TestAnOwnerMayBindItsLockAgain(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		const mine = "POST /locks/k?bind=connection&owner=w1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
		one, two := dial(t, network, s.address), dial(t, network, s.address)
		one.send(mine)
		first := one.events(http.StatusCreated)
		first.want("held")
		two.send(mine)
		second := two.events(http.StatusOK)
		second.want("held")
		if first.fence() != second.fence() {
			t.Error("it is another grant")
		}
		if status, members := s.ask("POST", "/locks/k?owner=w1&bind=none"); status != 409 || members["code"] != "parameter_mismatch" || members["parameter"] != "bind" {
			t.Errorf("unbound: %d %v", status, members)
		}
		if status, members := s.ask("POST", "/locks/k?owner=w1"); status != 200 || members["bind"] != "connection" {
			t.Errorf("without saying: %d %v", status, members)
		}
		s.client.CloseIdleConnections()
		_ = one.Conn.Close()
		time.Sleep(50 * time.Millisecond) // it has ended by then, or this proves less
		s.extend("k")
		second.want("renewed")
		_ = two.Conn.Close()
		awaitFree(t, store, "k", patience)
	})
}

// A caller that never reads costs its own lock, and nobody anything else. It may
// be at work: others have the lock once what it was told last is over.
func TestASlowReaderHoldsUpNobodyAndItsLockIsLeftToEnd(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store)
		slow, quick := dial(t, network, s.address), dial(t, network, s.address)
		if small, ok := slow.Conn.(interface{ SetReadBuffer(int) error }); ok {
			_ = small.SetReadBuffer(1024)
		}
		slow.send(bindPost)
		for deadline := time.Now().Add(10 * time.Second); !s.Holds("k"); time.Sleep(time.Millisecond) { // its answer is not read, which would tell
			if time.Now().After(deadline) {
				t.Fatal("the slow one has no lock")
			}
		}
		quick.send(strings.Replace(bindPost, "/k", "/quick", 1))
		events := quick.events(http.StatusCreated)
		events.want("held")
		renewed := func() bool {
			st, err := s.Get("k", locker.Handle{})
			return err == nil && st.Renew
		}
		for began := time.Now(); renewed(); time.Sleep(200 * time.Microsecond) {
			if time.Since(began) > 60*time.Second {
				t.Fatal("it is renewed for one who does not read")
			}
			at := time.Now()
			s.extend("k")
			s.extend("quick")
			events.want("renewed")
			if took := time.Since(at); took > writeTimeout*4/5 {
				t.Errorf("an extension and an event took %v", took)
			}
		}
		ttl := 2 * time.Second
		st, err := s.Extend(t.Context(), "k", locker.Handle{}, locker.Changes{TTL: &ttl})
		if err != nil {
			t.Fatal(err)
		}
		for {
			at := locker.BootTime()
			if o, err := store.Inspect(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if o.State == locker.OccupancyFree {
				if at < st.ValidUntil {
					t.Errorf("free %v before the end of its validity", st.ValidUntil.Sub(at))
				}
				break
			}
			if at.Sub(st.ValidUntil) > 2*time.Second {
				t.Fatal("it is never free")
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// counting counts how often every token that was granted was released. Requests
// that a busy machine has not let through are repeated, and do not count.
type counting struct {
	*memory.Backend
	mu       sync.Mutex
	granted  map[locker.Token]bool
	released map[locker.Token]int
}

func (c *counting) grant(t locker.Token, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.granted[t] = true
	}
}

func (c *counting) release(t locker.Token, v locker.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.Err == nil {
		c.released[t]++
	}
}

func (c *counting) Acquire(ctx context.Context, claim locker.Claim) (locker.Grant, error) {
	g, err := c.Backend.Acquire(ctx, claim)
	c.grant(claim.Token, err)
	return g, err
}

func (c *counting) AcquireInLine(ctx context.Context, claim locker.Claim, turn locker.Turn) (locker.Grant, error) {
	g, err := c.Backend.AcquireInLine(ctx, claim, turn)
	c.grant(claim.Token, err)
	return g, err
}

func (c *counting) HandOver(ctx context.Context, s locker.Surrender, claim locker.Claim, turn locker.Turn) (locker.Verdict, locker.Grant, error) {
	v, g, err := c.Backend.HandOver(ctx, s, claim, turn)
	c.release(s.Token, v)
	c.grant(claim.Token, err)
	return v, g, err
}

func (c *counting) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	verdicts := c.Backend.Release(ctx, surrenders)
	for i, v := range verdicts {
		c.release(surrenders[i].Token, v)
	}
	return verdicts
}

func TestCutsAtAnyTimeReleaseExactlyOnce(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	onEveryNetwork(t, func(t *testing.T, network string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		store := &counting{Backend: memory.New(memory.Config{}), granted: make(map[locker.Token]bool), released: make(map[locker.Token]int)}
		var server *Server
		s := newSidecar(t, network, store, detachAtOnce, func(s *Server) { server = s })
		var wg sync.WaitGroup
		for worker := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			wg.Go(func() {
				for range rounds / 4 {
					nc, err := net.Dial(network, s.address)
					if err != nil {
						t.Error(err)
						return
					}
					c := &client{Conn: nc, t: t}
					request := fmt.Sprintf("POST /locks/k%d?bind=connection&wait=%dms HTTP/1.1\r\nHost: localhost\r\n\r\n", random.IntN(2), random.IntN(20))
					_, _ = io.WriteString(c, request)
					time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond)
					waysToLeave[pick(random, waysToLeave)](c)
					if random.IntN(4) == 0 {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
					}
					_ = nc.Close()
				}
			})
		}
		wg.Wait()
		server.awaitNobody(t, network, s.address)
		for _, key := range []locker.Key{"k0", "k1"} {
			awaitFree(t, store, key, 20*time.Second)
		}
		deadline := time.Now().Add(20 * time.Second)
		for s.Stats() != (locker.Stats{}) || len(s.List()) > 0 {
			if time.Now().After(deadline) {
				t.Fatalf("left: %+v, %v", s.Stats(), s.List())
			}
			time.Sleep(time.Millisecond)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if len(store.granted) == 0 {
			t.Error("nothing was granted")
		}
		wrong := 0
		for token := range store.granted {
			if store.released[token] != 1 {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d grants were not released exactly once", wrong, len(store.granted))
		}
	})
}

func TestOpenStreamsHaveNoGoroutine(t *testing.T) {
	const streams = 200
	s := newSidecar(t, "unix", memory.New(memory.Config{}))
	settled := func() int { // the fewest of a while
		fewest := runtime.NumGoroutine()
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			fewest = min(fewest, runtime.NumGoroutine())
		}
		return fewest
	}
	first := dial(t, "unix", s.address)
	first.send(bindPost)
	first.events(http.StatusCreated).want("held") // all that runs in any case has begun
	_ = first.Conn.Close()
	before := settled()
	var open []*eventStream
	for i := range streams {
		c := dial(t, "unix", s.address)
		c.send(strings.Replace(bindPost, "/k", fmt.Sprint("/k", i), 1))
		e := c.events(http.StatusCreated)
		e.want("held")
		open = append(open, e)
	}
	for deadline := time.Now().Add(patience); ; {
		during := settled()
		if during <= before+5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d with %d streams", before, during, streams)
		}
	}
	for _, e := range open {
		_ = e.Conn.Close()
	}
	deadline := time.Now().Add(patience)
	for s.Stats().Held > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d are held", s.Stats().Held)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAShutdownOfTheServerEndsStreams(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		var server *Server
		s := newSidecar(t, network, store, func(s *Server) { server = s })
		c := dial(t, network, s.address)
		c.send(bindPost)
		events := c.events(http.StatusCreated)
		events.want("held")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if e, err := events.read(); err == nil {
			t.Errorf("it goes on with %v", e)
		}
		awaitFree(t, store, "k", patience)
	})
}

// Behind another server, the handler has to do with what every server offers.
func TestStreamsOfAHandlerServedElsewhere(t *testing.T) {
	store := memory.New(memory.Config{})
	s := newSidecar(t, "tcp", store)
	cfg := testConfig(s.Locker)
	cfg.Now = locker.BootTime
	elsewhere := httptest.NewServer(New(cfg).Handler())
	t.Cleanup(elsewhere.Close)
	c := dial(t, "tcp", strings.TrimPrefix(elsewhere.URL, "http://"))
	c.send(bindPost)
	events := c.events(http.StatusCreated)
	events.want("held")
	s.extend("k")
	events.want("renewed")
	_ = c.Conn.Close()
	awaitFree(t, store, "k", patience)
}

func TestAGrantThatIsOverBeforeItIsToldIsUnresolved(t *testing.T) {
	locks := newFakeLocks()
	response := do(t, newAPI(testConfig(locks)), "POST", "/locks/k", "bind=connection")
	if code, _ := codeOf(t, response); response.StatusCode != 503 || code != "acquire_unresolved" {
		t.Errorf("%d %s", response.StatusCode, code)
	}
	locks.awaitFate(t, 1, fateGivenBack, patience)
	locks.checkLedger(t)
}
