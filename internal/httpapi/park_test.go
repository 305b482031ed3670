package httpapi

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
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
		locks.awaitFate(t, 1, fateCleared, 2*time.Second)
		locks.awaitFate(t, 2, fateGivenBack, 2*time.Second)
	})
}

func TestAShutdownClosesParkedConnectionsAtOnce(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		s, address := parking(t, network, locks)
		told, silent := dial(t, network, address), dial(t, network, address)
		told.send(post)
		told.answerStatus(http.StatusCreated)
		s.awaitParked(t, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Shutdown(ctx); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, c := range []*client{told, silent} {
			if _, err := c.r.ReadByte(); err != io.EOF {
				t.Errorf("%v, want the end of the connection", err)
			}
		}
		locks.awaitFate(t, 1, fateCleared, time.Second)
	})
}
