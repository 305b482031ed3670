package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wire is a raw connection to a process's API. Its answers are not recorded.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// wire opens a raw connection, which is closed when the test ends.
func (p *proc) wire() *wire {
	p.t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = nc.Close() })
	return &wire{nc, p.t, bufio.NewReader(nc)}
}

// request writes a request down, with a form if there is one.
func request(method, target, form string) string {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target)
	if form == "" {
		return head + "\r\n"
	}
	return head + fmt.Sprintf("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(form), form)
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatal(err)
	}
}

// read reads one answer.
func (w *wire) read() (answer, error) {
	if err := w.SetReadDeadline(time.Now().Add(answerDeadline)); err != nil {
		return answer{}, err
	}
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(res.Body)
	a := answer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
	if strings.Contains(a.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(body, &a.JSON) // a list has none of these fields
	}
	return a, err
}

// answer reads one answer, which must come.
func (w *wire) answer() answer {
	w.t.Helper()
	a, err := w.read()
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// exchange sends a request and reads its answer. It may be called from any
// goroutine.
func (w *wire) exchange(text string) (answer, error) {
	if _, err := io.WriteString(w, text); err != nil {
		return answer{}, err
	}
	return w.read()
}

// ask is exchange for an answer that must come.
func (w *wire) ask(method, target, form string) answer {
	w.t.Helper()
	a, err := w.exchange(request(method, target, form))
	if err != nil {
		w.t.Fatal(err)
	}
	a.again = func() answer { return w.ask(method, target, form) }
	return a
}

// take asks for a lock until it gets an answer other than 503: on a machine
// that is busy with other tests, Redis may be slow. It may be called from any
// goroutine.
func (w *wire) take(key, form string) (answer, error) {
	for deadline := time.Now().Add(answerDeadline); ; {
		a, err := w.exchange(request(http.MethodPost, "/locks/"+key, form))
		if err != nil || a.Status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return a, err
		}
	}
}

// rest reads answers until the process closes the connection, which it must.
func (w *wire) rest() (statuses []int, bodies string) {
	w.t.Helper()
	for {
		a, err := w.read()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			w.t.Fatal("the connection was not closed")
		case err != nil:
			return statuses, bodies
		}
		statuses, bodies = append(statuses, a.Status), bodies+a.Body
	}
}

// awaitUnread returns once an answer has arrived, without taking it.
func (w *wire) awaitUnread() {
	w.t.Helper()
	if err := w.SetReadDeadline(time.Now().Add(answerDeadline)); err != nil {
		w.t.Fatal(err)
	}
	raw, err := w.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		var peek [1]byte
		_, _, peekErr = syscall.Recvfrom(int(fd), peek[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !errors.Is(peekErr, syscall.EAGAIN)
	})
	if err := errors.Join(err, peekErr); err != nil {
		w.t.Fatal(err)
	}
}

// reset closes the connection as a kernel does for a process that is killed
// with input unread.
func (w *wire) reset() {
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	_ = w.Close()
}

// endSending ends our side, unless the other one has ended all, and still
// reads.
func (w *wire) endSending() {
	w.t.Helper()
	if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
		w.t.Fatal(err)
	}
}

// lines returns the lines of the log with that message.
func (p *proc) lines(message string) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(p.Log()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// listed returns how many locks the process lists in each state, without
// recording what it tells of them.
func (p *proc) listed() map[string]int {
	p.t.Helper()
	res, err := p.client.Get(p.URL + "/locks")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	var list struct{ Locks []struct{ State string } }
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		p.t.Fatal(err)
	}
	states := make(map[string]int)
	for _, lock := range list.Locks {
		states[lock.State]++
	}
	return states
}
