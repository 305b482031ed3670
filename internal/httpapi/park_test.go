package httpapi

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// parking serves the API with connections that net/http gives up at once.
func parking(t *testing.T, network string, locks Locks) (s *Server, address string) {
	t.Helper()
	s = New(testConfig(locks))
	s.http.IdleTimeout = time.Millisecond
	return s, serveOn(t, network, s)
}

// awaitParked waits until so many connections wait outside net/http.
func (s *Server) awaitParked(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.conns.mu.Lock()
		parked := len(s.conns.attended)
		s.conns.mu.Unlock()
		if parked == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are parked, want %d", parked, n)
		}
	}
}

const refused = "GET /drain HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestAParkedConnectionIsServedAgain(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s, address := parking(t, network, newFakeLocks())
		c := dial(t, network, address)
		for range 20 {
			s.awaitParked(t, 1)
			c.send(refused)
			c.answerStatus(http.StatusMethodNotAllowed)
		}
		s.awaitParked(t, 1)
		c.send(refused + refused + refused)
		for range 3 {
			c.answerStatus(http.StatusMethodNotAllowed)
		}
	})
}

// net/http looks for four bytes before it takes a request for begun.
func TestTheFirstBytesOfARequestAreNotForgotten(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s, address := parking(t, network, newFakeLocks())
		for n := range 6 {
			c := dial(t, network, address)
			c.send(refused)
			c.answerStatus(http.StatusMethodNotAllowed)
			c.send(refused[:n])
			time.Sleep(5 * time.Millisecond) // for the idle timeout to pass
			c.send(refused[n:])
			c.answerStatus(http.StatusMethodNotAllowed)
			_ = c.Close()
			s.awaitParked(t, 0)
		}
	})
}

func TestWhatBecameOfAnAnswerIsKnownAfterParking(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		s, address := parking(t, network, locks)
		read, unread := dial(t, network, address), dial(t, network, address)
		read.send(post)
		read.answerStatus(http.StatusCreated)
		s.awaitParked(t, 2)
		unread.send(post)
		unread.awaitUnread()
		s.awaitParked(t, 2)
		_ = read.Conn.Close()
		_ = unread.Conn.Close()
		locks.awaitFate(t, 1, fateCleared, patience)
		locks.awaitFate(t, 2, fateGivenBack, patience)
	})
}

func TestAShutdownClosesParkedConnectionsAtOnce(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		promptly(t, "the shutdown", lingerTime, func() time.Duration {
			locks := newFakeLocks()
			s, address := parking(t, network, locks)
			told, silent := dial(t, network, address), dial(t, network, address)
			told.send(post)
			told.answerStatus(http.StatusCreated)
			s.awaitParked(t, 2)
			began := time.Now()
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			for _, c := range []*client{told, silent} {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := c.r.ReadByte(); err != io.EOF {
					t.Errorf("%v, want the end of the connection", err)
				}
			}
			locks.awaitFate(t, 1, fateCleared, patience)
			return took
		})
	})
}

// onlyParked returns the one connection that waits outside net/http.
func (s *Server) onlyParked(t *testing.T) *conn {
	t.Helper()
	s.awaitParked(t, 1)
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.attended {
		return c
	}
	return nil
}

// A lock whose answer lies unread is given back however long it has lain there.
func TestAnIdleConnectionSaysNothingOfAnAnswerThatWasNotRead(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		var s *Server
		side := newSidecar(t, network, memory.New(memory.Config{}), func(server *Server) {
			s = server
			s.http.IdleTimeout = time.Millisecond
		})
		unread := dial(t, network, side.address)
		unread.send(post)
		unread.awaitUnread()
		idle := s.onlyParked(t)
		for s.conns.lot.remove(idle.Conn) == nil { // it is just being parked
			time.Sleep(time.Millisecond)
		}
		idle.expire()
		s.awaitParked(t, 1)
		_ = unread.Conn.Close()
		for deadline := time.Now().Add(10 * time.Second); side.Holds("k"); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the lock is held, and nobody knows of it")
			}
		}
	})
}

// The time that the caller had to take one answer is over before the next is due.
func TestACallerThatWaitsForAContinueIsToldToGoOn(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		s := New(testConfig(newFakeLocks()))
		s.http.IdleTimeout = time.Millisecond
		s.http.ConnState = func(nc net.Conn, state http.ConnState) {
			noteState(nc, state)
			if state == http.StateIdle {
				_ = nc.SetWriteDeadline(time.Unix(1, 0)) // as it is seconds later
			}
		}
		c := dial(t, network, serveOn(t, network, s))
		c.send(post)
		c.answerStatus(http.StatusCreated)
		s.awaitParked(t, 1)
		c.send("POST /locks/l HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
			"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n")
		if response, err := http.ReadResponse(c.r, nil); err != nil || response.StatusCode != http.StatusContinue {
			t.Fatalf("got %v, %v, want 100", response, err)
		}
		c.send("ttl=9s")
		c.answerStatus(http.StatusCreated)
	})
}
