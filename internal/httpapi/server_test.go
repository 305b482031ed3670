package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// start serves a server that the test has altered.
func start(t *testing.T, s *Server, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// impatient is a server with timeouts fit for a test. A request that is there
// must be read within them even if the machine is busy.
func impatient(locks Locks) *Server {
	s := New(testConfig(locks))
	s.http.ReadHeaderTimeout, s.http.ReadTimeout = 300*time.Millisecond, 400*time.Millisecond
	s.http.IdleTimeout, s.conns.idle = 100*time.Millisecond, 100*time.Millisecond
	return s
}

func TestAnIdleConnectionLastsAsLongAsALockThatItTold(t *testing.T) {
	for name, proven := range map[string]bool{"another request follows": true, "the caller says nothing more": false} {
		t.Run(name, func(t *testing.T) {
			locks := newFakeLocks()
			var over atomic.Bool
			looked := make(chan struct{}, 100)
			locks.lasts = func(locker.GrantID) bool {
				looked <- struct{}{}
				return !over.Load()
			}
			l := listen(t)
			start(t, impatient(locks), l)
			c := dial(t, "tcp", l.Addr().String())
			c.send(post)
			c.answerStatus(201)
			if proven {
				c.send("GET /drain HTTP/1.1\r\nHost: localhost\r\n\r\n")
				c.answerStatus(405)
			}
			for range 3 {
				<-looked
			}
			if got, _ := locks.fate(1); got != fateOpen {
				t.Fatalf("the grant is %s while it is held and its connection open", got)
			}
			over.Store(true)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("%v, want the end of the connection once the lock is over", err)
			}
			locks.awaitFate(t, 1, fateCleared, patience)
		})
	}
}

func TestAnIdleConnectionThatToldNothingIsClosed(t *testing.T) {
	l := listen(t)
	start(t, impatient(newFakeLocks()), l)
	c := dial(t, "tcp", l.Addr().String())
	c.send("GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n")
	c.answerStatus(200)
	if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end of the connection", err)
	}
}

func TestAShutdownThatRunsOutOfTimeCutsTheRestOffAndGivesBack(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		asked, answer := make(chan struct{}), make(chan struct{})
		locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
			close(asked)
			<-answer
			return locks.statusOf(1, r), false, nil
		}
		s, address := serve(t, network, testConfig(locks))
		c := dial(t, network, address)
		c.send(post)
		<-asked
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		close(answer)
		locks.awaitFate(t, 1, fateGivenBack, patience)
	})
}

func TestACutOffShutdownLingersOnNoConnection(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		const clients = 5
		locks := newFakeLocks()
		asked, answer := make(chan struct{}, clients), make(chan struct{})
		locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
			if r.Key == "l" {
				asked <- struct{}{}
				<-answer
			}
			st := locks.grant(r)
			locks.mu.Lock()
			locks.granted[st.ID]-- // Acquire counts it
			locks.mu.Unlock()
			return st, false, nil
		}
		s, address := serve(t, network, testConfig(locks))
		for range clients {
			c := dial(t, network, address)
			c.send(post + strings.Replace(post, "/k", "/l", 1)) // the first answer is never proven
			<-asked
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		if took := time.Since(began); took > (clients-1)*lingerTime { // net/http closes one after the other
			t.Errorf("shutdown took %s", took)
		}
		close(answer)
		locks.awaitSettled(t, 2*clients, patience)
	})
}

func TestAShutdownWaitsUntilAnswersAreSettled(t *testing.T) {
	locks := newFakeLocks()
	s, address := serve(t, "unix", testConfig(locks))
	c := dial(t, "unix", address)
	c.send(post)
	c.awaitUnread()
	c.closeWrite() // unread: it takes settleTime to give it up
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := locks.fate(1); got == fateOpen {
		t.Error("the grant is not settled")
	}
}

func TestAConnectionCostsNoGoroutineBeyondNetHTTPs(t *testing.T) {
	const clients = 500
	locks := newFakeLocks()
	_, address := serve(t, "tcp", testConfig(locks))
	before := runtime.NumGoroutine()
	for range clients {
		c := dial(t, "tcp", address)
		c.send(post)
		c.answerStatus(201)
	}
	// net/http's goroutine that watches for the caller's end may take a moment
	// to end after the answer.
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine()-before > clients+clients/10 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for %d idle connections", runtime.NumGoroutine()-before, clients)
		}
		time.Sleep(time.Millisecond)
	}
}

// exhausted is a listener that once has no file descriptor left.
type exhausted struct {
	net.Listener
	failed atomic.Bool
}

func (l *exhausted) Accept() (net.Conn, error) {
	if !l.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestALackOfFileDescriptorsDoesNotEndTheServer(t *testing.T) {
	l := listen(t)
	start(t, New(testConfig(newFakeLocks())), &exhausted{Listener: l})
	c := dial(t, "tcp", l.Addr().String())
	c.send("GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n")
	c.answerStatus(200)
}

// broken is a listener that fails for good.
type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, errors.New("no more") }

func TestADoorThatFailsEndsTheOthers(t *testing.T) {
	s := New(testConfig(newFakeLocks()))
	fine := listen(t)
	if err := s.Serve(fine, broken{listen(t)}); err == nil {
		t.Error("no error")
	}
	if c, err := net.Dial("tcp", fine.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the other door is still open")
	}
}
