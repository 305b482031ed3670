package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// viewer is somebody who reads a feed.
type viewer struct {
	header http.Header
	began  time.Time
	fails  bool // takes nothing

	mu     sync.Mutex
	status int
	at     []time.Duration // of each event
	events []string
	leave  context.CancelFunc
	gone   chan struct{}
}

func (v *viewer) Header() http.Header    { return v.header }
func (v *viewer) WriteHeader(status int) { v.status = status }
func (v *viewer) FlushError() error      { return nil }
func (v *viewer) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fails {
		return 0, errors.New("it takes nothing")
	}
	v.at = append(v.at, time.Since(v.began))
	v.events = append(v.events, string(p))
	return len(p), nil
}

// times returns when events came, and forgets them.
func (v *viewer) times() []time.Duration {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.at
	v.at, v.events = nil, nil
	return at
}

func (v *viewer) over() bool {
	synctest.Wait()
	select {
	case <-v.gone:
		return true
	default:
		return false
	}
}

// watch begins to read a feed. It belongs into a bubble.
func watch(t *testing.T, h http.Handler, alter ...func(*viewer, *http.Request)) *viewer {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	v := &viewer{header: make(http.Header), began: time.Now(), leave: leave, gone: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, "GET", "/", http.NoBody)
	r.Host = "localhost:5625"
	r.Header.Set("Accept", "text/event-stream")
	for _, f := range alter {
		f(v, r)
	}
	go func() {
		defer close(v.gone)
		h.ServeHTTP(v, r)
	}()
	synctest.Wait()
	return v
}

// news is what fakeLocks.changes returns.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) changes() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

func same(got []time.Duration, want ...time.Duration) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

const ms = time.Millisecond

func TestAFeedTellsOfChangesButNotTooOftenAndOfNoneNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, n := newFakeLocks(), new(news)
		locks.changes = n.changes
		locks.over = func(locker.Query) locker.Overview { return busy(locks) }
		v := watch(t, newAPI(testConfig(locks)))
		if v.status != 200 || v.header.Get("Content-Type") != "text/event-stream" || v.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", v.status, v.header)
		}
		event := v.events[0]
		data, ok := strings.CutPrefix(event, "event: snapshot\ndata: ")
		var told struct{ Held section[struct{ Key string }] }
		if err := json.Unmarshal([]byte(data), &told); !ok || err != nil || told.Held.Rows[0].Key != "a" || !strings.HasSuffix(event, "}\n\n") || strings.Count(event, "\n") != 3 {
			t.Fatalf("%v\n%s", err, event)
		}
		if at := v.times(); !same(at, 0) {
			t.Fatalf("the first snapshot came at %v", at)
		}
		for range 100 { // within the first quarter of a second
			time.Sleep(ms)
			n.tell()
		}
		time.Sleep(300 * ms)
		if at := v.times(); !same(at, 250*ms) {
			t.Errorf("a hundred changes were told at %v", at)
		}
		time.Sleep(600 * ms) // 1 s since the beginning
		n.tell()
		if at := v.times(); !same(at, 1000*ms) {
			t.Errorf("a change was told at %v", at)
		}
		time.Sleep(4100 * ms)
		if at := v.times(); !same(at, 3000*ms, 5000*ms) {
			t.Errorf("without a change it is told at %v", at)
		}
		v.leave()
		if !v.over() {
			t.Error("the feed goes on after its viewer has left")
		}
	})
}

func TestMakingSnapshotsTakesATwentiethOfTheTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, n := newFakeLocks(), new(news)
		locks.changes = n.changes
		var mu sync.Mutex
		var spent time.Duration
		locks.over = func(locker.Query) locker.Overview {
			time.Sleep(50 * ms)
			mu.Lock()
			defer mu.Unlock()
			spent += 50 * ms
			return locker.Overview{}
		}
		h := newAPI(testConfig(locks))
		for range feedsMost {
			watch(t, h)
		}
		for range 1000 {
			time.Sleep(100 * ms)
			n.tell()
		}
		mu.Lock()
		defer mu.Unlock()
		// The first round, which nothing has preceded, is for all.
		if most := 100*time.Second/feedFraction + feedsMost*50*ms; spent > most || spent < 2*time.Second {
			t.Errorf("%v of 100 s were spent on looking", spent)
		}
		for range feedsMost {
			h.feeds.end()
		}
	})
}

func TestTheNumberOfFeedsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAPI(testConfig(newFakeLocks()))
		var open []*viewer
		for range feedsMost {
			open = append(open, watch(t, h))
		}
		refused := do(t, h, "GET", "/", "", "Accept", "text/event-stream")
		if code, _ := codeOf(t, refused); refused.StatusCode != 429 || code != "too_many_feeds" || refused.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", refused.StatusCode, code)
		}
		if json := do(t, h, "GET", "/", ""); json.StatusCode != 200 {
			t.Errorf("a single snapshot: %d", json.StatusCode)
		}
		open[3].leave()
		synctest.Wait()
		if v := watch(t, h); v.status != 200 || v.over() {
			t.Errorf("after one has left: %d", v.status)
		}
		h.feeds.end()
		synctest.Wait()
		if h.feeds.open != 0 {
			t.Errorf("%d feeds are counted after their end", h.feeds.open)
		}
	})
}

func TestFeedsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAPI(testConfig(newFakeLocks()))
		early := watch(t, h) // still in its first quarter of a second
		early.times()
		h.feeds.end()
		late := watch(t, h)
		late.times()
		for _, v := range []*viewer{early, late} {
			if !v.over() || len(v.events) > 1 {
				t.Errorf("it goes on: %q", v.events)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newAPI(testConfig(newFakeLocks()))
		v := watch(t, h)
		time.Sleep(time.Second)
		h.feeds.end()
		if !v.over() || v.events[len(v.events)-1] != "event: end\ndata: {}\n\n" {
			t.Errorf("the last event is %q", v.events)
		}
	})
}

func TestAViewerThatTakesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAPI(testConfig(newFakeLocks()))
		if v := watch(t, h, func(v *viewer, _ *http.Request) { v.fails = true }); !v.over() {
			t.Error("the feed goes on")
		}
	})
}

func TestPagesOfOtherOriginsMayNotUseUpTheFeeds(t *testing.T) {
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		synctest.Test(t, func(t *testing.T) {
			v := watch(t, newAPI(testConfig(newFakeLocks())), func(_ *viewer, r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
			if v.status != status {
				t.Errorf("%s: %d", site, v.status)
			}
			v.leave()
			synctest.Wait()
		})
	}
}

func TestManyFeedsAskTheStoreForItsHealthOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(newFakeLocks())
		asked := 0
		cfg.Health = func(ctx context.Context) Health {
			asked++
			time.Sleep(300 * ms) // it does not answer
			if ctx.Err() != nil {
				t.Error("it was asked in the name of somebody who left")
			}
			return Health{Problem: "unavailable"}
		}
		h := newAPI(cfg)
		first := watch(t, h)
		first.leave() // while the store is being asked
		v := watch(t, h)
		for range 10 {
			watch(t, h)
		}
		time.Sleep(10 * time.Second)
		v.mu.Lock()
		if !strings.Contains(v.events[0], `"store":"unavailable"`) || v.at[0] > 300*ms {
			t.Errorf("at %v: %s", v.at[0], v.events[0])
		}
		v.mu.Unlock()
		if asked > 7 {
			t.Errorf("the store was asked %d times in ten seconds", asked)
		}
		h.feeds.end()
	})
}

// TestAFeedOutlastsTheTimeoutsOfRequests is over a real connection: net/http's
// time-outs for reading must not cut it, and the server's end must end it.
func TestAFeedOutlastsTheTimeoutsOfRequests(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks, n := newFakeLocks(), new(news)
		locks.changes = n.changes
		s := impatient(locks)
		address := serveOn(t, network, s)
		c := dial(t, network, address)
		c.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		response, err := http.ReadResponse(c.r, nil)
		if err != nil || response.StatusCode != 200 {
			t.Fatal(err, response)
		}
		var seen bytes.Buffer
		buffer := make([]byte, 4096)
		for began := time.Now(); time.Since(began) < 2*time.Second; { // several times the time-outs
			n.tell()
			got, err := response.Body.Read(buffer)
			if err != nil {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
			seen.Write(buffer[:got])
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Fatalf("shutdown: %v", err)
		}
		if _, err := seen.ReadFrom(response.Body); err != nil || !strings.HasSuffix(seen.String(), "event: end\ndata: {}\n\n") {
			t.Errorf("%v; the feed ended with %.200q", err, seen.Bytes()[max(0, seen.Len()-200):])
		}
	})
}

func TestAFeedEndsWithItsConnection(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s, address := serve(t, network, testConfig(newFakeLocks()))
		for _, leave := range []func(*client){
			func(c *client) { _ = c.Close() },
			func(c *client) { _ = c.Conn.(interface{ CloseWrite() error }).CloseWrite() },
			func(c *client) {
				if tcp, ok := c.Conn.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = c.Close()
			},
		} {
			c := dial(t, network, address)
			c.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
			if _, err := http.ReadResponse(c.r, nil); err != nil {
				t.Fatal(err)
			}
			leave(c)
		}
		feeds := s.http.Handler.(*api).feeds
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * ms) {
			feeds.mu.Lock()
			open := feeds.open
			feeds.mu.Unlock()
			if open == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d feeds are open after their connections have ended", open)
			}
		}
	})
}
