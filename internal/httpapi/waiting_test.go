package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// leavingRounds is how many callers leave on each network.
func leavingRounds() int {
	if testing.Short() {
		return 250
	}
	return 2500
}

// atOnce is far below the second after which those who wait ask by themselves,
// and far above what a busy machine mostly adds to the milliseconds that it takes.
const atOnce = 700 * time.Millisecond

// waiterRequests are the spellings of a POST that waits. What is not read of a
// body, or stands behind it, hides from net/http that the caller has gone.
var waiterRequests = map[string]string{
	"query":   "POST /locks/%s?wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"form":    "POST /locks/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n\r\nwait=60s",
	"chunked": "POST /locks/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{\"wait\":\"60s\"}\r\n0\r\n\r\n",
}

// waysToLeave are what a server sees of callers that go away.
var waysToLeave = map[string]func(*client){
	"end":        func(c *client) { _ = c.Conn.Close() },
	"reset":      (*client).abort,
	"half-close": func(c *client) { _ = c.Conn.(interface{ CloseWrite() error }).CloseWrite() },
}

// detachAtOnce takes connections from net/http as soon as their callers wait.
func detachAtOnce(s *Server) { s.conns.detachAfter = 0 }

// queueing is one key that is handed on from waiter to waiter.
type queueing struct {
	t      *testing.T
	pods   []*sidecar // of this line alone, since a list of all locks would count as an answer
	key    locker.Key
	random *rand.Rand

	at     *sidecar // who has the lock
	fence  int64
	delays []time.Duration // from release and departure to the next grant
	late   []span          // those that were not at once
	read   int             // leavers that half-closed and were told all the same
}

// span is a time.
type span struct{ from, to time.Time }

// pauses returns when this process was not run, until stop is closed.
func pauses(stop <-chan struct{}) (found []span) {
	const beat = 5 * time.Millisecond
	for last := time.Now(); ; {
		select {
		case <-stop:
			return found
		case <-time.After(beat):
		}
		now := time.Now()
		if now.Sub(last) > 10*beat {
			found = append(found, span{last, now})
		}
		last = now
	}
}

// without returns how long it lasts, without pauses.
func (s span) without(pauses []span) time.Duration {
	lasts := s.to.Sub(s.from)
	for _, p := range pauses {
		lasts -= max(0, min(p.to.Sub(s.from), s.to.Sub(p.from), p.to.Sub(p.from), s.to.Sub(s.from)))
	}
	return lasts
}

// pick returns any of the map's names, the same for the same seed.
func pick[T any](random *rand.Rand, from map[string]T) string {
	names := make([]string, 0, len(from))
	for name := range from {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[random.IntN(len(names))]
}

// readGrant reads an answer and returns the fencing token of a grant, 0 for any
// other answer or none.
func readGrant(nc net.Conn, r *bufio.Reader, within time.Duration) (fence int64, err error) {
	_ = nc.SetReadDeadline(time.Now().Add(within))
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		body, _ := io.ReadAll(response.Body)
		return 0, fmt.Errorf("the answer is %s: %s", response.Status, body)
	}
	_, err = fmt.Sscan(response.Header.Get(fenceHeader), &fence)
	return fence, err
}

// wait has a new caller wait for the key and returns once it is in line.
func (q *queueing) wait() (c *client, at *sidecar, err error) {
	at = q.pods[q.random.IntN(len(q.pods))]
	nc, err := net.Dial(at.network, at.address)
	if err != nil {
		return nil, nil, err
	}
	c = &client{Conn: nc, t: q.t, r: bufio.NewReader(nc)}
	before := q.waiters()
	if _, err := fmt.Fprintf(nc, waiterRequests[pick(q.random, waiterRequests)], q.key); err != nil {
		return c, at, err
	}
	return c, at, q.await("a caller stands in line", func() bool { return q.waiters() > before })
}

// waiters counts those who wait.
func (q *queueing) waiters() (n int) {
	for _, pod := range q.pods {
		n += pod.Stats().Waiting
	}
	return n
}

func (q *queueing) await(what string, condition func() bool) error {
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			return errors.New("not in time: " + what)
		}
	}
	return nil
}

func (q *queueing) release(at *sidecar, fence int64) error {
	r, err := http.NewRequest(http.MethodDelete, fmt.Sprintf("%s/locks/%s?fencing_token=%d", at.url, q.key, fence), http.NoBody)
	if err != nil {
		return err
	}
	response, err := at.client.Do(r)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the release is answered by %s", response.Status)
	}
	return nil
}

// round has one of two waiters leave at about the moment of the release. The
// other must have the lock at once.
func (q *queueing) round() error {
	var leaver, next *client
	var leaverAt, nextAt *sidecar
	var err error
	defer func() {
		for _, c := range []*client{leaver, next} {
			if c != nil {
				_ = c.Conn.Close()
			}
		}
	}()
	leaverFirst := q.random.IntN(8) > 0
	if leaverFirst {
		leaver, leaverAt, err = q.wait()
	}
	if err == nil {
		next, nextAt, err = q.wait()
	}
	if err == nil && !leaverFirst {
		leaver, leaverAt, err = q.wait()
	}
	if err != nil {
		return err
	}
	way := pick(q.random, waysToLeave)
	early := time.Duration(q.random.IntN(1200)-600) * time.Microsecond
	left := make(chan time.Time, 1)
	go func() {
		time.Sleep(-early)
		waysToLeave[way](leaver)
		left <- time.Now()
	}()
	time.Sleep(early)
	if err := q.release(q.at, q.fence); err != nil {
		return err
	}
	began := time.Now()
	if at := <-left; at.After(began) {
		began = at
	}
	if way == "half-close" {
		// It still reads, and may have been told before it left.
		if fence, err := readGrant(leaver.Conn, leaver.r, 10*time.Second); err == nil {
			q.read++
			if err := q.release(leaverAt, fence); err != nil {
				return err
			}
			began = time.Now()
		}
	}
	fence, err := readGrant(next.Conn, next.r, 10*time.Second)
	if err != nil {
		return fmt.Errorf("%s: the next waiter: %w", way, err)
	}
	q.delays = append(q.delays, time.Since(began))
	if took := time.Since(began); took > atOnce {
		q.late = append(q.late, span{began, began.Add(took)})
		q.t.Logf("%s, %v after the release, first in line: %t, same pod: %t: the next waiter was granted after %v", way, -early, leaverFirst, leaverAt == nextAt, took)
	}
	if fence <= q.fence {
		return fmt.Errorf("fencing token %d after %d", fence, q.fence)
	}
	q.at, q.fence = nextAt, fence
	return q.await("nobody is in line", func() bool {
		o, err := q.pods[0].Inspect(q.t.Context(), q.key)
		return err == nil && o.State == locker.OccupancyHeld && o.QueueLength == 0 && q.waiters() == 0
	})
}

// run takes the lock, has it handed on for so many rounds, and gives it back.
func (q *queueing) run(rounds int) error {
	q.at = q.pods[0]
	nc, err := net.Dial(q.at.network, q.at.address)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := fmt.Fprintf(nc, "POST /locks/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", q.key); err != nil {
		return err
	}
	if q.fence, err = readGrant(nc, bufio.NewReader(nc), 10*time.Second); err != nil {
		return err
	}
	for i := range rounds {
		if err := q.round(); err != nil {
			return fmt.Errorf("%s, round %d: %w", q.key, i, err)
		}
	}
	return q.release(q.at, q.fence)
}

func TestAWaiterThatLeavesAroundTheGrantHoldsUpNobodyAndLeavesNothing(t *testing.T) {
	const lines = 10
	onEveryNetwork(t, func(t *testing.T, network string) {
		// One late waiter may be the machine's doing; several, in each of three
		// runs, are not.
		for run := 1; ; run++ {
			late, all := leaveAroundGrants(t, network, lines)
			if late <= 1 {
				return
			}
			if run == 3 || t.Failed() {
				t.Fatalf("%d of %d waiters had to wait for longer than %v", late, all, atOnce)
			}
		}
	})
}

// leaveAroundGrants hands keys on and returns how many of the waiters had to
// wait while this process was run. Those that had to until the same moment count
// as one.
func leaveAroundGrants(t *testing.T, network string, lines int) (late, all int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	store := memory.New(memory.Config{})
	queues := make([]*queueing, lines)
	var running sync.WaitGroup
	for i := range queues {
		q := &queueing{
			t: t, pods: []*sidecar{newSidecar(t, network, store, detachAtOnce), newSidecar(t, network, store)},
			key: locker.Key(fmt.Sprint("k", i)), random: rand.New(rand.NewPCG(seed, uint64(i))),
		}
		queues[i] = q
		running.Go(func() {
			if err := q.run(leavingRounds() / lines); err != nil {
				t.Error(err)
			}
		})
	}
	var paused []span
	var watching sync.WaitGroup
	over := make(chan struct{})
	watching.Go(func() { paused = pauses(over) })
	running.Wait()
	close(over)
	watching.Wait()
	var delays []time.Duration
	var ends []time.Time
	read := 0
	for _, q := range queues {
		awaitFree(t, store, q.key, patience)
		delays, read = append(delays, q.delays...), read+q.read
		for _, wait := range q.late {
			if wait.without(paused) > atOnce {
				ends = append(ends, wait.to)
			}
		}
		for _, pod := range q.pods {
			if rest := pod.List(); len(rest) > 0 || pod.Stats().Waiting > 0 {
				t.Errorf("%s: something is left: %+v, %+v", q.key, rest, pod.Stats())
			}
		}
	}
	if len(delays) == 0 {
		t.Fatal("there were no rounds")
	}
	slices.Sort(delays)
	t.Logf("%d rounds, %d half-closed and were told; until the next grant: median %v, 99 %% %v, most %v",
		len(delays), read, delays[len(delays)/2], delays[len(delays)*99/100], delays[len(delays)-1])
	slices.SortFunc(ends, time.Time.Compare)
	for i, end := range ends {
		if i == 0 || end.Sub(ends[i-1]) > atOnce/10 {
			late++
		}
	}
	return late, len(delays)
}

func TestWhatAWaiterIsTold(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		one, two := newSidecar(t, network, store), newSidecar(t, network, store)
		one.ask("POST", "/locks/k?owner=w1&note=nightly")
		for _, wait := range []string{"-1s", "5", "1h1ms", "1µs", "soon", "25h"} {
			status, members := two.ask("POST", "/locks/k?wait="+wait)
			if status != 400 || members["code"] != "invalid_wait" {
				t.Errorf("wait=%s: %d %v", wait, status, members)
			}
		}
		began := time.Now()
		status, members := two.ask("POST", "/locks/k?wait=50ms")
		holder, _ := members["holder"].(map[string]any)
		if status != 409 || members["code"] != "wait_timeout" || members["state"] != "held" || members["held_here"] != false ||
			holder["pod"] != "shop/web-0" || holder["note"] != "nightly" || members["queue_length"] == nil || members["expires_in_ms"] == nil {
			t.Errorf("%d %v", status, members)
		}
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("the wait of 50ms took %v", took)
		}
		if status, members := one.ask("POST", "/locks/k?wait=20ms&owner=w2"); status != 409 || members["code"] != "wait_timeout" || members["held_here"] != true {
			t.Errorf("%d %v", status, members)
		}
		if status, members := one.ask("POST", "/locks/k?wait=20s&owner=w1"); status != 200 || members["owner"] != "w1" {
			t.Errorf("the holder that waits for its own lock is told %d %v", status, members)
		}
	})
}

// waiting sends a POST that waits and returns once that is in line.
func (s *sidecar) waiting(target string) *client {
	s.t.Helper()
	before := s.Stats().Waiting
	c := dial(s.t, s.network, s.address)
	c.send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for deadline := time.Now().Add(10 * time.Second); s.Stats().Waiting <= before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("nobody is in line")
		}
	}
	return c
}

func TestAnOwnerWaitsOnlyOnce(t *testing.T) {
	s := newSidecar(t, "tcp", memory.New(memory.Config{}))
	s.ask("POST", "/locks/k")
	s.waiting("/locks/k?wait=1m&owner=w")
	if status, members := s.ask("POST", "/locks/k?wait=1m&owner=w"); status != 409 || members["code"] != "owner_busy" {
		t.Errorf("%d %v", status, members)
	}
}

func TestTryOnceIsToldOfThoseInLine(t *testing.T) {
	store := memory.New(memory.Config{})
	one, two := newSidecar(t, "tcp", store), newSidecar(t, "tcp", store)
	one.ask("POST", "/locks/k")
	two.waiting("/locks/k?wait=1m")
	var got map[string]any
	for deadline := time.Now().Add(10 * time.Second); fmt.Sprint(got["queue_length"]) != "1"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the place in line does not show: %v", got)
		}
		_, got = two.ask("GET", "/locks/k")
	}
	if status, members := two.ask("POST", "/locks/k"); status != 409 || members["code"] != "held" || fmt.Sprint(members["queue_length"]) != "1" {
		t.Errorf("%d %v", status, members)
	}
}

func TestDrainAndShutdownEndAllWaitsAtOnce(t *testing.T) {
	for code, end := range map[string]func(*sidecar){
		"draining":      func(s *sidecar) { s.ask("POST", "/drain") },
		"shutting_down": func(s *sidecar) { s.Refuse() },
	} {
		t.Run(code, func(t *testing.T) {
			promptly(t, "taking it after those who were sent away", atOnce, func() time.Duration {
				store := memory.New(memory.Config{})
				one, two := newSidecar(t, "tcp", store), newSidecar(t, "tcp", store)
				two.ask("POST", "/locks/k")
				var waiters []*client
				for range 20 {
					waiters = append(waiters, one.waiting("/locks/k?wait=1m"))
				}
				end(one)
				for _, c := range waiters {
					response, body := c.answer()
					if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" || !strings.Contains(body, `"code":"`+code+`"`) {
						t.Fatalf("%d %v %s", response.StatusCode, response.Header, body)
					}
				}
				if status, _ := two.ask("DELETE", "/locks/k"); status != 204 {
					t.Error(status)
				}
				awaitFree(t, store, "k", patience)
				began := time.Now()
				for status, members := 0, map[string]any(nil); status != 201; status, members = two.ask("POST", "/locks/k") {
					if time.Since(began) > patience {
						t.Fatalf("those who were sent away are in the way: %d %v", status, members)
					}
				}
				return time.Since(began)
			})
		})
	}
}

func TestWhatACallerSendsBehindItsWaitIsAnsweredAfterItAndHidesNoDeparture(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		store := memory.New(memory.Config{})
		s := newSidecar(t, network, store, detachAtOnce)
		for _, late := range []bool{false, true} {
			s.ask("POST", "/locks/k")
			c, gone := s.waiting("/locks/k?wait=1m"), s.waiting("/locks/k?wait=1m")
			if late {
				time.Sleep(20 * time.Millisecond) // for the connection to be net/http's no more
			}
			c.send(refused + refused)
			gone.send(refused)
			_ = gone.Conn.Close()
			for deadline := time.Now().Add(10 * time.Second); s.Stats().Waiting != 1; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the one that has gone still waits")
				}
			}
			s.ask("DELETE", "/locks/k")
			c.answerStatus(http.StatusCreated)
			c.answerStatus(http.StatusMethodNotAllowed)
			c.answerStatus(http.StatusMethodNotAllowed)
			s.ask("DELETE", "/locks/k")
		}
	})
}
