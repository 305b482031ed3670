package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// A stream of events is the answer to a POST with bind=connection, and to a GET
// that accepts one. Its connection is taken from net/http for good: what the
// caller sends behind the request is not answered any more.

// bind answers a POST with bind=connection whose lock was granted. The lock ends
// with the connection, however that ends.
func (a *api) bind(w http.ResponseWriter, r *http.Request, got acquired) error {
	open := false
	defer func() { // also after a panic
		if !open {
			a.Locks.Unbind(got.st.ID, locker.LeftUntold)
		}
	}()
	if r.Context().Err() != nil {
		return locker.ErrCallerGone
	}
	s := &stream{locks: a.Locks, id: got.st.ID, bound: true}
	first, err := a.follow(s, got.st)
	if err != nil || isLast(first) {
		return fmt.Errorf("%w: it was over before it could be told", locker.ErrAcquireUnresolved)
	}
	status := http.StatusCreated
	if got.repeated {
		status = http.StatusOK
	}
	open = true
	return a.stream(w, r, s, status, first)
}

// getEvents answers a GET that accepts a stream. The lock goes on without it.
func (a *api) getEvents(w http.ResponseWriter, r *http.Request, st locker.Status) error {
	s := &stream{locks: a.Locks, id: st.ID}
	first, err := a.follow(s, st)
	switch {
	case err == nil && first.Lost != nil:
		err = first.Lost
	case err == nil && isLast(first):
		err = locker.ErrNotHeld
	}
	if err != nil {
		return a.withOccupancy(r, st.Key, err)
	}
	return a.stream(w, r, s, http.StatusOK, first)
}

// follow begins to follow the grant and returns its first event, which may be
// its last.
func (a *api) follow(s *stream, st locker.Status) (first locker.Event, err error) {
	s.busy, s.alarm = true, alarm{index: -1, wake: s.wake}
	s.watch, err = a.Locks.Follow(s.id, s.wake)
	if err != nil {
		if _, why := a.Locks.Get(st.Key, locker.Handle{Fence: st.Fence}); why != nil {
			err = why
		}
		return locker.Event{}, err
	}
	first, _, _ = s.watch.Look()
	if isLast(first) {
		s.watch.Close()
	}
	return first, nil
}

// stream answers with the events of a grant, of which the first was read. The
// connection belongs to the stream from then on, where it can be had.
func (a *api) stream(w http.ResponseWriter, r *http.Request, s *stream, status int, first locker.Event) error {
	h := w.Header()
	h.Set("Content-Type", typeEvents)
	h.Set("X-Accel-Buffering", "no") // nginx would collect events
	h.Set(fenceHeader, strconv.FormatInt(int64(first.Status.Fence), 10))
	c := connOf(r)
	if c == nil || !c.takeOver(w) {
		a.streamHere(w, r, s, status)
		return nil
	}
	s.conn, s.chunked = c, r.ProtoAtLeast(1, 1)
	tuneStream(c.Conn)
	s.commentAt = s.now().Add(commentEvery)
	open := false
	defer func() { // also after a panic
		if !open {
			s.end(nil)
		}
	}()
	if !c.all.attendStream(s) || c.hasEnded() || s.writeEvent(s.headOf(status, h), first) != nil {
		return nil
	}
	open = true
	s.attend()
	s.turn()
	return nil
}

// headOf is the head of the answer.
func (s *stream) headOf(status int, h http.Header) []byte {
	proto := "HTTP/1.0"
	if s.chunked {
		proto = "HTTP/1.1"
		h.Set("Transfer-Encoding", "chunked")
	}
	h.Set("Connection", "close")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %d %s\r\n", proto, status, http.StatusText(status))
	_ = h.Write(&head) // to memory
	head.WriteString("\r\n")
	return head.Bytes()
}

// streamHere streams in the handler's own goroutine, for a server whose
// connections cannot be taken.
func (a *api) streamHere(w http.ResponseWriter, r *http.Request, s *stream, status int) {
	how := locker.LeftUntold
	if s.bound {
		defer func() { a.Locks.Unbind(s.id, how) }()
	}
	s.watch.Close()
	watch, err := a.Locks.Follow(s.id, nil)
	if err != nil {
		a.fail(w, r, locker.ErrAcquireUnresolved)
		return
	}
	defer watch.Close()
	w.WriteHeader(status)
	for {
		ctx, cancel := context.WithTimeout(r.Context(), commentEvery)
		e, err := watch.Next(ctx)
		cancel()
		text := comment
		switch {
		case err == nil:
			if text, err = encodeEvent(e); err != nil {
				return
			}
		case !errors.Is(err, context.DeadlineExceeded) || r.Context().Err() != nil:
			return // over, or the caller has gone
		}
		limitWrite(w)
		if _, err = io.WriteString(w, text); err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if isTimeout(err) {
			how = locker.LeftDeaf
		}
		if err != nil {
			return
		}
		how = locker.Left
	}
}

// takeOver takes the connection from net/http for good; false if that cannot be
// done. What the caller has sent behind its request is dropped.
func (c *conn) takeOver(w http.ResponseWriter) bool {
	if _, detached := w.(*answerWriter); !detached {
		if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
			return false
		}
	}
	c.pending = nil
	_ = c.Conn.SetReadDeadline(time.Time{})
	return true
}

func (c *conn) wasReset() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reset
}

// attendStream notes a stream; false if the server shuts down.
func (cs *conns) attendStream(s *stream) bool {
	cs.attend(s.conn)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	s.conn.stream = s
	return !cs.closing
}

// endStreams ends all streams. What was told over them by then still arrives.
func (cs *conns) endStreams() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.attended {
		if s := c.stream; s != nil {
			cs.streams.Go(func() { s.end(nil) })
		}
	}
}
