package httpapi

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// commentEvery is how often a comment line is sent.
	commentEvery = 10 * time.Second

	// streamBuffer is how much the kernel keeps for a caller that does not read.
	streamBuffer = 16 << 10

	// mostUnasked bounds what a caller may send behind a request for a stream.
	// It is read, since its end stands behind it, and thrown away.
	mostUnasked = 4 << 10
)

// stream tells a caller of one grant until the grant or the connection is over.
// It has a goroutine only while there is something to write or to read, so that
// thousands may be open for hours.
type stream struct {
	locks   Locks
	conn    *conn
	watch   *locker.Watch
	id      locker.GrantID
	bound   bool // the grant ends with the connection
	chunked bool

	// Of whoever has the turn.
	commentAt locker.Instant
	lingerTo  locker.Instant // 0 until the last event was written

	unasked int // bytes read; of whoever reads

	mu     sync.Mutex // held for nothing that takes time
	writes int
	busy   bool // somebody has the turn
	again  bool // look again before giving it up
	over   bool
	alarm  alarm
}

func (s *stream) now() locker.Instant { return s.conn.all.alarms.now() }

// wake has the stream look for something to write. It does not block.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.busy:
		s.again = true
	default:
		s.busy = true
		s.conn.all.streams.Go(s.turn)
	}
}

// turn writes what there is to tell, and ends the stream if that was all.
func (s *stream) turn() {
	for {
		at, open, err := s.tell()
		if !open {
			s.end(err)
			return
		}
		if s.rest(at) {
			return
		}
	}
}

// rest gives up the turn until an instant, unless there is reason to look again.
func (s *stream) rest(at locker.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return true
	case s.again:
		s.again = false
		return false
	}
	s.busy = false
	s.conn.all.alarms.set(&s.alarm, at)
	return true
}

// tell writes all that there is to tell now and returns when to look again;
// open is false if the connection is to be closed, perhaps because of an error.
func (s *stream) tell() (at locker.Instant, open bool, err error) {
	if s.lingerTo != 0 {
		return s.lingerTo, s.now() < s.lingerTo, nil
	}
	for {
		e, news, again := s.watch.Look()
		switch {
		case news:
			if err := s.writeEvent(nil, e); err != nil {
				return 0, false, err
			}
			if isLast(e) {
				s.watch.Close()         // others may have the lock now
				_ = s.conn.CloseWrite() // the caller ends its side once it has read this
				s.lingerTo = s.now().Add(lingerTime)
				return s.lingerTo, true, nil
			}
		case s.now() >= s.commentAt:
			s.commentAt = s.now().Add(commentEvery)
			if err := s.write(nil, comment, false); err != nil {
				return 0, false, err
			}
		default:
			return min(again, s.commentAt), true, nil
		}
	}
}

// writeEvent writes an event, behind the head of the answer if there is one.
// One that says that the lock is held is left out if that is over by now: this
// process may have been stopped since it was read.
func (s *stream) writeEvent(head []byte, e locker.Event) error {
	text, err := encodeEvent(e)
	if err != nil {
		return err
	}
	if !isLast(e) && s.now() >= e.Status.ValidUntil {
		if head != nil {
			return locker.ErrAcquireUnresolved
		}
		return nil
	}
	return s.write(head, text, isLast(e))
}

// write writes a part of the answer, behind its head if there is one.
func (s *stream) write(head []byte, text string, last bool) error {
	if s.chunked {
		head = fmt.Appendf(head, "%x\r\n%s\r\n", len(text), text)
		if last {
			head = append(head, "0\r\n\r\n"...)
		}
	} else {
		head = append(head, text...)
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.conn.Write(head)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	return err
}

// attend begins to watch for the end of the connection.
func (s *stream) attend() {
	if !s.awaitInput() {
		s.conn.all.streams.Go(s.read)
	}
}

// awaitInput has the lot call read; false if it cannot.
func (s *stream) awaitInput() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && s.conn.all.lot.add(s.conn.Conn, time.Time{}, s.readable)
}

func (s *stream) readable(bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.conn.all.streams.Go(s.read)
	}
}

// read reads, and ends the stream if the caller has ended the connection.
func (s *stream) read() {
	var scrap [512]byte
	for {
		n, err := s.conn.Conn.Read(scrap[:])
		s.conn.noteRead(nil, err)
		s.unasked += n
		if err != nil || s.unasked > mostUnasked {
			s.end(err)
			return
		}
		if s.awaitInput() {
			return
		}
	}
}

// end ends the stream, because of an error if there is one, and with it the lock
// that is bound to it.
func (s *stream) end(err error) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over = true
	how := locker.Left
	switch {
	case isTimeout(err):
		how = locker.LeftDeaf
	case s.writes == 0, s.writes == 1 && s.conn.wasReset(): // who resets has not read it all
		how = locker.LeftUntold
	}
	s.mu.Unlock()
	all := s.conn.all
	all.alarms.clear(&s.alarm)
	all.lot.remove(s.conn.Conn)
	_ = s.conn.CloseWrite() // before others can have the lock, if it is us who end it
	if s.bound {
		s.locks.Unbind(s.id, how)
	}
	s.watch.Close()
	all.leave(s.conn)
	_ = s.conn.Close()
}

// isTimeout tells whether what is sent to the caller is not taken, by itself or
// by its machine.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
