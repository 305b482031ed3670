package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// The networks over which every fact about delivery is shown.
var networks = []string{"tcp", "unix"}

func onEveryNetwork(t *testing.T, test func(t *testing.T, network string)) {
	t.Helper()
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			test(t, network)
		})
	}
}

// client is a raw connection to the API.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, network, address string) *client {
	t.Helper()
	nc, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &client{Conn: nc, t: t, r: bufio.NewReader(nc)}
}

func (c *client) send(request string) {
	c.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.t.Fatal(err)
	}
}

const post = "POST /locks/k HTTP/1.1\r\nHost: localhost\r\n\r\n"

// answer reads one answer and its body.
func (c *client) answer() (*http.Response, string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response, string(body)
}

func (c *client) answerStatus(want int) string {
	c.t.Helper()
	response, body := c.answer()
	if response.StatusCode != want {
		c.t.Fatalf("status %d, want %d: %s", response.StatusCode, want, body)
	}
	return body
}

// awaitUnread waits until an answer has arrived, without taking it.
func (c *client) awaitUnread() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var peek [1]byte
	var peekErr error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, peekErr = syscall.Recvfrom(int(fd), peek[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !errors.Is(peekErr, syscall.EAGAIN)
	}); err != nil || peekErr != nil {
		c.t.Fatal(err, peekErr)
	}
}

// abort closes the connection with a reset, as a kernel does for a process
// that dies with input unread.
func (c *client) abort() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

func (c *client) closeWrite() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

func TestAReadAnswerIsDelivered(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		_, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		c.answerStatus(http.StatusCreated)
		if got, _ := locks.fate(1); got != fateOpen {
			t.Fatalf("grant is %s while its connection is open", got)
		}
		_ = c.Conn.Close()
		locks.awaitFate(t, 1, fateCleared, patience)
	})
}

func TestEveryCurlThatExitsKeepsItsLock(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is needed: apt-get install curl")
	}
	const rounds = 200
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		_, address := serve(t, network, testConfig(locks))
		args, url := []string{"-fsS", "-o", "/dev/null", "-d", "ttl=30s"}, "http://"+address
		if network == "unix" {
			args, url = append(args, "--unix-socket", address), "http://localhost"
		}
		args = slices.Clip(args)
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range rounds / 4 {
					command := exec.Command("curl", append(args, fmt.Sprintf("%s/locks/k%d-%d", url, worker, i))...)
					if out, err := command.CombinedOutput(); err != nil {
						t.Errorf("curl: %v: %s", err, out)
					}
				}
			})
		}
		wg.Wait()
		for id := range locker.GrantID(rounds) {
			locks.awaitFate(t, id+1, fateCleared, patience)
		}
	})
}

func TestAnAnswerThatIsNotReadIsGivenBack(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		for name, leave := range map[string]func(*client){
			"close": func(c *client) { _ = c.Conn.Close() },
			"reset": (*client).abort,
		} {
			t.Run(name, func(t *testing.T) {
				locks := newFakeLocks()
				_, address := serve(t, network, testConfig(locks))
				c := dial(t, network, address)
				c.send(post)
				c.awaitUnread()
				leave(c)
				locks.awaitFate(t, 1, fateGivenBack, patience)
			})
		}
	})
}

func TestCallersThatLeaveAtAnyMomentLeaveNoLock(t *testing.T) {
	const rounds = 300
	onEveryNetwork(t, func(t *testing.T, network string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		locks := newFakeLocks()
		var jitter sync.Map // grant made after so long
		locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
			d, _ := jitter.Load(r.Key)
			time.Sleep(d.(time.Duration))
			st := locks.grant(r)
			locks.mu.Lock()
			locks.granted[st.ID]-- // the caller counts it
			locks.mu.Unlock()
			return st, false, nil
		}
		_, address := serve(t, network, testConfig(locks))
		leave := []func(*client){
			func(c *client) { _ = c.Conn.Close() },
			(*client).abort,
		}
		for i := range rounds {
			jitter.Store(locker.Key(fmt.Sprint(i)), time.Duration(random.IntN(300))*time.Microsecond)
			c := dial(t, network, address)
			c.send(fmt.Sprintf("POST /locks/%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i))
			time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
			leave[i%len(leave)](c)
		}
		locks.awaitCount(t, rounds, patience)
	})
}

// awaitCount waits until so many grants were given back, and none cleared.
func (f *fakeLocks) awaitCount(t *testing.T, grants int, within time.Duration) {
	t.Helper()
	for id := range locker.GrantID(grants) {
		f.awaitFate(t, id+1, fateGivenBack, within)
	}
}

func TestHalfCloseBeforeTheAnswerCountsAsLeaving(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		locks.acquire = func(ctx context.Context, r locker.Request) (locker.Status, bool, error) {
			<-ctx.Done()
			return locker.Status{}, false, locker.ErrCallerGone
		}
		_, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		c.closeWrite()
		if body := c.answerStatus(http.StatusBadRequest); !strings.Contains(body, "caller_gone") {
			t.Errorf("answer %s", body)
		}
	})
}

func TestAGrantIsGivenBackIfTheCallerEndedJustBeforeTheAnswer(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		locks.acquire = func(ctx context.Context, r locker.Request) (locker.Status, bool, error) {
			<-ctx.Done()
			return locks.statusOf(7, r), false, nil
		}
		_, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		c.closeWrite()
		locks.awaitFate(t, 7, fateGivenBack, patience)
		if body := c.answerStatus(http.StatusBadRequest); strings.Contains(body, "fencing_token") {
			t.Errorf("a caller that had left was told of the grant: %s", body)
		}
	})
}

func TestAnAnswerThatCannotBeWrittenIsGivenBack(t *testing.T) {
	// A pipe takes nothing unless the other side reads.
	near, far := net.Pipe()
	locks := newFakeLocks()
	cs := &conns{locks: locks, limit: 1}
	c := &conn{Conn: near, all: cs}
	a := newAPI(testConfig(locks))
	written := make(chan error, 1)
	r, err := http.NewRequestWithContext(withConn(t.Context(), c), http.MethodPost, "/locks/k", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now())
	go func() {
		defer func() { recover() }()
		w := &connWriter{conn: c, header: make(http.Header)}
		st, _, _ := locks.Acquire(t.Context(), locker.Request{Key: "k"})
		written <- a.deliver(w, r, st, func() error { _, err := w.Write([]byte("answer")); return err })
	}()
	locks.awaitFate(t, 1, fateGivenBack, patience)
	_ = far.Close()
	_ = c.Close()
	locks.checkLedger(t)
}

// connWriter is a ResponseWriter that writes to a connection at once.
type connWriter struct {
	conn   *conn
	header http.Header
}

func (w *connWriter) Header() http.Header         { return w.header }
func (w *connWriter) WriteHeader(int)             {}
func (w *connWriter) Write(p []byte) (int, error) { return w.conn.Write(p) }
func (w *connWriter) FlushError() error           { return nil }

func TestAPanicAfterTheGrantGivesItBack(t *testing.T) {
	locks := newFakeLocks()
	a := newAPI(testConfig(locks))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/locks/k", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	st, _, _ := locks.Acquire(t.Context(), locker.Request{Key: "k"})
	func() {
		defer func() { recover() }()
		_ = a.deliver(&connWriter{}, r, st, func() error { panic("boom") })
	}()
	locks.awaitFate(t, 1, fateGivenBack, 0)
	locks.checkLedger(t)
}

func TestAReusedConnectionKeepsTheFirstLockIfALaterAnswerIsNotRead(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		_, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		c.answerStatus(http.StatusCreated)
		c.send(strings.Replace(post, "/k", "/l", 1))
		c.awaitUnread()
		_ = c.Conn.Close()
		locks.awaitFate(t, 2, fateGivenBack, patience)
		locks.awaitFate(t, 1, fateCleared, patience)
	})
}

func TestARequestSentAheadOfTheAnswerProvesNothing(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		asked := make(chan struct{})
		locks.acquire = func(ctx context.Context, r locker.Request) (locker.Status, bool, error) {
			close(asked)
			c := ctx.Value(connKey{}).(*conn)
			for quiet := true; quiet; time.Sleep(100 * time.Microsecond) { // until the next request begins
				c.mu.Lock()
				quiet = c.framing.quiet()
				c.mu.Unlock()
			}
			return locks.statusOf(1, r), false, nil
		}
		_, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		<-asked
		c.send("GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.awaitUnread()
		_ = c.Conn.Close()
		locks.awaitFate(t, 1, fateGivenBack, patience)
	})
}

func TestAnEndThatIsSeenJustBeforeTheFirstByteKeepsTheAnswerBack(t *testing.T) {
	near, far := net.Pipe()
	locks := newFakeLocks()
	c := &conn{Conn: near, all: &conns{locks: locks}}
	r, err := http.NewRequestWithContext(withConn(t.Context(), c), http.MethodPost, "/locks/k", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	st, _, _ := locks.Acquire(t.Context(), locker.Request{Key: "k"})
	received := make(chan string)
	go func() {
		all, _ := io.ReadAll(far)
		received <- string(all)
	}()
	func() {
		defer func() { recover() }()
		w := &connWriter{conn: c, header: make(http.Header)}
		_ = newAPI(testConfig(locks)).deliver(w, r, st, func() error {
			c.noteRead(nil, io.EOF)
			_, err := w.Write([]byte("answer"))
			return err
		})
	}()
	locks.awaitFate(t, 1, fateGivenBack, 0)
	_ = c.Close()
	if got := <-received; got != "" {
		t.Errorf("a caller that had left was told %q", got)
	}
	locks.checkLedger(t)
}

// A Unix socket tells what the other process has read, TCP only what the other
// kernel has taken.
func TestACallerThatEndsItsSideAfterTheAnswerAndReadsNothing(t *testing.T) {
	for network, want := range map[string]fate{"unix": fateGivenBack, "tcp": fateCleared} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			locks := newFakeLocks()
			_, address := serve(t, network, testConfig(locks))
			c := dial(t, network, address)
			c.send(post)
			c.awaitUnread()
			c.closeWrite()
			locks.awaitFate(t, 1, want, patience)
		})
	}
}

// An answer to a chunked request is followed by the server's own end.
const chunkedPost = "POST /locks/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" +
	"Content-Type: application/x-www-form-urlencoded\r\n\r\n7\r\nttl=30s\r\n0\r\n\r\n"

func TestWhereTheServerEndsTheConnectionTheCallersEndDecides(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		t.Run("read", func(t *testing.T) {
			locks := newFakeLocks()
			_, address := serve(t, network, testConfig(locks))
			c := dial(t, network, address)
			c.send(chunkedPost)
			c.answerStatus(http.StatusCreated)
			_ = c.Conn.Close()
			locks.awaitFate(t, 1, fateCleared, patience)
		})
		t.Run("unread", func(t *testing.T) {
			locks := newFakeLocks()
			_, address := serve(t, network, testConfig(locks))
			c := dial(t, network, address)
			c.send(chunkedPost)
			c.awaitUnread()
			_ = c.Conn.Close()
			locks.awaitFate(t, 1, fateGivenBack, patience)
		})
		t.Run("read and kept open", func(t *testing.T) {
			locks := newFakeLocks()
			_, address := serve(t, network, testConfig(locks))
			c := dial(t, network, address)
			c.send(chunkedPost)
			c.answerStatus(http.StatusCreated)
			locks.awaitFate(t, 1, fateCleared, patience)
		})
	})
}

func TestAShutdownClosesIdleConnectionsAtOnceAndKeepsDeliveredLocks(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		const clients = 50
		promptly(t, "the shutdown", lingerTime, func() time.Duration {
			locks := newFakeLocks()
			s, address := serve(t, network, testConfig(locks))
			for range clients {
				c := dial(t, network, address)
				c.send(post)
				c.answerStatus(http.StatusCreated)
			}
			began := time.Now()
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			for id := range locker.GrantID(clients) {
				locks.awaitFate(t, id+1, fateCleared, patience)
			}
			return took
		})
	})
}

func TestALockToldAgainIsSettledOnceForEachAnswer(t *testing.T) {
	locks := newFakeLocks()
	locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
		return locks.statusOf(5, r), true, nil
	}
	locks.lasts = func(id locker.GrantID) bool { return id == 5 }
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	const times = 5 * leastSweep
	for range times {
		c.send(post)
		c.answerStatus(http.StatusOK)
	}
	_ = c.Conn.Close()
	locks.awaitFate(t, 5, fateCleared, patience)
	deadline := time.Now().Add(2 * time.Second)
	for {
		locks.mu.Lock()
		cleared := locks.cleared[5]
		locks.mu.Unlock()
		if cleared == times {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("cleared %d times, want %d", cleared, times)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestALongLivedConnectionForgetsLocksThatAreOver(t *testing.T) {
	locks := newFakeLocks()
	cs := &conns{locks: locks}
	c := &conn{all: cs}
	for range 10_000 {
		st := locks.grant(locker.Request{Key: "k"})
		c.told(telling{id: st.ID})
		c.mu.Lock()
		c.proveLocked()
		c.mu.Unlock()
	}
	if n := len(c.tellings); n > 2*leastSweep {
		t.Errorf("the connection remembers %d locks of which none is held", n)
	}
}

func TestNothingIsAskedOfTheLocksAboutAnAnswerThatMayNotHaveArrived(t *testing.T) {
	// A Locker takes Get for an answer of its own, and would not take back what
	// it has told.
	locks := newFakeLocks()
	locks.get = func(_ locker.Key, h locker.Handle) (locker.Status, error) {
		if newest := locker.Fence(1000 + leastSweep); h.Fence > newest-unprovenMax {
			t.Errorf("asked for the grant of fence %d", h.Fence)
		}
		return locker.Status{}, locker.ErrNotHeld
	}
	near, far := net.Pipe()
	_ = far.Close()
	c := &conn{Conn: near, all: &conns{locks: locks}}
	for range leastSweep {
		st := locks.grant(locker.Request{Key: "k"})
		c.told(telling{id: st.ID})
	}
	if n := len(c.tellings); n != unprovenMax {
		t.Errorf("%d answers are remembered, want %d", n, unprovenMax)
	}
	c.reset = true
	_ = c.Close()
	locks.checkLedger(t)
	locks.awaitFate(t, leastSweep, fateGivenBack, 0)
}
