package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// detachAfter is how long a wait may take until its connection is taken from
// net/http, which spends some 20 KiB on a request: two stacks, two buffers and
// all that it has parsed. Locks that change hands faster do not pay for that.
const detachAfter = 100 * time.Millisecond

// acquisition is a request for a lock that waits. It goes on in a goroutine of
// its own, so that net/http's can be let go. What it needs is kept here and not
// on that goroutine's stack, whose size is most of what a waiter costs.
type acquisition struct {
	request locker.Request
	ctx     context.Context
	leave   context.CancelFunc // the caller has gone
	got     acquired
	done    chan struct{}  // taken by the handler, unless it has detached
	taken   chan *detached // has room
}

// acquired is the outcome of an acquisition.
type acquired struct {
	st       locker.Status
	repeated bool
	bound    bool // the lock is to end with the connection
	err      error
}

// acquireWaiting answers a POST that waits.
func (a *api) acquireWaiting(w http.ResponseWriter, r *http.Request, req locker.Request) error {
	wait := &acquisition{request: req, done: make(chan struct{}), taken: make(chan *detached, 1)}
	c := connOf(r)
	wait.ctx, wait.leave = context.WithCancel(withConn(context.Background(), c))
	go a.carryOut(wait)
	timer := time.NewTimer(c.all.detachAfter)
	defer timer.Stop()
	select {
	case <-wait.done:
	case <-r.Context().Done():
		wait.leave()
		<-wait.done
	case <-timer.C:
		d := c.detach(w, r, wait)
		if d != nil {
			wait.taken <- d
			return nil
		}
		stop := context.AfterFunc(r.Context(), wait.leave)
		defer stop()
		<-wait.done
	}
	defer wait.leave()
	return a.tellAcquired(w, r, wait.got)
}

// carryOut waits for the lock, and tells of it if nobody else does.
func (a *api) carryOut(wait *acquisition) {
	a.acquireSafely(wait)
	select {
	case wait.done <- struct{}{}:
	case d := <-wait.taken:
		a.finish(d, wait)
	}
}

// acquireSafely is Acquire that turns a panic into an error, as a handler does.
func (a *api) acquireSafely(wait *acquisition) {
	defer func() {
		if cause := recover(); cause != nil {
			a.Log.Error("waiting for a lock panicked", "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
			wait.got = acquired{err: refuse("internal_error", "")}
		}
	}()
	wait.got.bound = wait.request.Bound
	wait.got.st, wait.got.repeated, wait.got.err = a.Locks.Acquire(wait.ctx, wait.request)
}

// detached is a connection whose caller waits, and all that its answer needs
// of the request.
type detached struct {
	conn    *conn
	request *http.Request
	answer  *answerWriter
	watched chan struct{} // closed once nobody reads from the connection
}

// detach takes the connection from net/http; nil if that cannot be done. From
// then on it is watched whether the caller leaves.
func (c *conn) detach(w http.ResponseWriter, r *http.Request, wait *acquisition) *detached {
	if c.from == nil || !r.ProtoAtLeast(1, 1) {
		return nil
	}
	header := w.Header().Clone()
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		behind, _ := buffered.Reader.Peek(n) // there are as many
		c.pending = append(bytes.Clone(behind), c.pending...)
	}
	if r.Close {
		header.Set("Connection", "close")
	}
	brief := &http.Request{Method: r.Method, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath}, Header: http.Header{}}
	if accept, ok := r.Header["Accept"]; ok {
		brief.Header["Accept"] = accept
	}
	d := &detached{
		conn: c, request: brief.WithContext(wait.ctx), watched: make(chan struct{}),
		answer: &answerWriter{conn: c, header: header},
	}
	c.all.attend(c)
	watch := func(bool) { go d.watch(wait.leave) }
	if !c.all.lot.add(c.Conn, time.Time{}, watch) {
		watch(false)
	}
	return d
}

// mostAhead bounds what is read of requests that a caller sends before the
// answer to the one that waits. Behind it, its end shows only at the answer.
const mostAhead = 4 << 10

// watch ends the wait once the caller ends the connection.
func (d *detached) watch(leave context.CancelFunc) {
	defer close(d.watched)
	for len(d.conn.pending) < mostAhead {
		if d.conn.readAhead() {
			continue
		}
		if d.conn.hasEnded() {
			leave()
		}
		return
	}
}

func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended || c.closed
}

// finish answers and parks the connection, or closes it.
func (a *api) finish(d *detached, wait *acquisition) {
	defer wait.leave()
	_ = d.conn.Conn.SetReadDeadline(time.Unix(1, 0)) // one that is closed is read no more either
	if d.conn.all.lot.remove(d.conn.Conn) == nil {
		<-d.watched
	}
	d.conn.all.leave(d.conn)
	keep, streams := false, false
	defer func() {
		if cause := recover(); cause != nil {
			a.Log.Error("telling of a lock panicked", "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
		switch {
		case streams:
		case keep:
			d.conn.park()
		default:
			_ = d.conn.Close()
		}
	}()
	if err := a.tellAcquired(d.answer, d.request, wait.got); err != nil {
		a.fail(d.answer, d.request, err)
	} else if wait.got.bound {
		streams = true // the connection is the stream's
		return
	}
	keep = d.answer.FlushError() == nil && !strings.EqualFold(d.answer.header.Get("Connection"), "close")
}

// answerWriter writes one answer with a body of known length to a connection.
type answerWriter struct {
	conn   *conn
	header http.Header
	status int
	body   []byte
	sent   bool
	err    error
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) WriteHeader(status int) { w.status = status }

func (w *answerWriter) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), w.err
}

// SetWriteDeadline is called through a http.ResponseController.
func (w *answerWriter) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// FlushError sends the answer unless that was done.
func (w *answerWriter) FlushError() error {
	if w.sent {
		return w.err
	}
	w.sent = true
	if w.status == 0 {
		w.err = errors.New("there is no answer")
		return w.err
	}
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\n", w.status, http.StatusText(w.status))
	w.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	w.header.Set("Content-Length", strconv.Itoa(len(w.body)))
	_ = w.header.Write(&answer) // to memory
	answer.WriteString("\r\n")
	answer.Write(w.body)
	_, w.err = w.conn.Write(answer.Bytes())
	return w.err
}
