package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// leastGarbage is how much of a file must be out of date before it is
	// written anew, beside being more than what is not.
	leastGarbage = 256 << 10
	// reserveSize is kept free for the file that is written anew when the
	// volume is full: without it, a full volume would stay full though every
	// lock is given back.
	reserveSize = 64 << 10
	// floorEvery bounds how old the reading of the store's clock in the file
	// may be, as long as anything is written.
	floorEvery = time.Second
)

// store is the file of records. Its methods are not safe for concurrent use,
// but for Problem.
type store struct {
	cfg  Config
	path string // our folder

	make func(path string) (file, error) // opens a new file

	file  file  // nil until the first write
	size  int64 // of what is good in the file
	bad   bool  // there is something behind that, so nothing may be appended
	live  map[locker.GrantID]place
	used  int64 // what of size is in places
	tried int64 // what of it was in use when it could last not be written anew

	// owed are lines of grants that could not be written yet; an empty one
	// says that nothing is left of the grant.
	owed map[locker.GrantID][]byte

	pen     *pen
	spans   []span // of the grants' lines in pen
	floor   locker.Floor
	floorAt locker.Instant
	unkept  bool // the floor could not be written

	problem atomic.Pointer[string]
}

// file is what is used of an *os.File.
type file interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
	Truncate(size int64) error
	Close() error
}

func makeFile(path string) (file, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// place is where the last record of a grant is in the file.
type place struct {
	at     int64
	length int32
}

// span is where a line is in the pen's text.
type span struct {
	id         locker.GrantID
	phase      locker.Phase
	start, end int
}

func (s *store) init() {
	s.pen, s.make, s.tried = newPen(), makeFile, math.MaxInt64
	s.live, s.owed = make(map[locker.GrantID]place), make(map[locker.GrantID][]byte)
}

// probe fails if nothing can ever be written here. That there is no space for
// it now is no failure.
func (s *store) probe() error {
	s.reserve()
	next, err := s.create(nextFile)
	if isFull(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make a file in it: %w", plain(err))
	}
	_ = next.Close() // nothing was written
	return s.remove(nextFile)
}

// create makes a file in the place of one that may be there.
func (s *store) create(name string) (file, error) {
	if err := s.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s.make(filepath.Join(s.path, name))
}

func (s *store) remove(name string) error { return os.Remove(filepath.Join(s.path, name)) }

// Problem says why records cannot be written; empty if they can.
func (s *store) Problem() string {
	if problem := s.problem.Load(); problem != nil {
		return *problem
	}
	return ""
}

// Write implements locker.Journal.
func (s *store) Write(records []locker.Record, f locker.Floor) error {
	s.pen.text.Reset()
	s.spans = s.spans[:0]
	s.layOutDebts()
	for i := range records {
		start := s.pen.text.Len()
		s.pen.writeGrant(&records[i])
		s.spans = append(s.spans, span{records[i].ID, records[i].Phase, start, s.pen.text.Len()})
	}
	now := lastInstant(records)
	if s.unkept || f != s.floor && (f.Highest != s.floor.Highest || now >= s.floorAt.Add(floorEvery)) {
		s.pen.writeFloor(f)
		s.floor, s.floorAt = f, now
	}
	err := s.write()
	if s.unkept = err != nil; s.unkept {
		s.owe()
	}
	s.tell(err)
	if s.pen.text.Cap() > mostText {
		s.pen, s.spans = newPen(), nil
	}
	return err
}

// mostText bounds the memory that is kept from one write to the next.
const mostText = 256 << 10

func lastInstant(records []locker.Record) (at locker.Instant) {
	for _, r := range records {
		at = max(at, r.At)
	}
	return at
}

// write appends the pen's text, or writes the file anew with it.
func (s *store) write() error {
	if s.file == nil || s.bad {
		return s.rewrite()
	}
	// A volume without space for it has some once locks were given back.
	may := s.used < s.tried
	if garbage := s.size - s.used; may && garbage > max(s.used, leastGarbage) {
		if err := s.rewrite(); err == nil || s.file == nil {
			return err
		}
		may = false
	}
	err := s.append()
	if err != nil && may {
		if s.rewrite() == nil {
			return nil
		}
	}
	return err
}

// append appends the pen's text to the file.
func (s *store) append() error {
	if _, err := s.file.WriteAt(s.pen.text.Bytes(), s.size); err != nil {
		s.bad = s.file.Truncate(s.size) != nil
		return err
	}
	s.take(s.size)
	s.size += int64(s.pen.text.Len())
	return nil
}

// take takes in that the pen's text is in the file from an offset on.
func (s *store) take(offset int64) {
	for _, sp := range s.spans {
		s.forget(sp.id)
		if sp.phase != locker.PhaseOver {
			s.live[sp.id] = place{offset + int64(sp.start), int32(sp.end - sp.start)}
			s.used += int64(sp.end - sp.start)
		}
	}
	clear(s.owed)
}

func (s *store) forget(id locker.GrantID) (known bool) {
	old, known := s.live[id]
	s.used -= int64(old.length)
	delete(s.live, id)
	return known
}

// owe keeps what could not be written, save for what its callers drop now.
func (s *store) owe() {
	text := s.pen.text.Bytes()
	for _, sp := range s.spans {
		switch sp.phase {
		case locker.PhaseAsking, locker.PhaseGranted:
		case locker.PhaseOver:
			if _, owed := s.owed[sp.id]; s.forget(sp.id) || owed {
				s.owed[sp.id] = nil
			}
		default:
			s.owed[sp.id] = slices.Clone(text[sp.start:sp.end])
		}
	}
}

// layOutDebts writes what is owed to the pen's text.
func (s *store) layOutDebts() {
	for id, text := range s.owed {
		start, phase := s.pen.text.Len(), locker.PhaseReleasing // or any other that stays
		if text == nil {
			phase = locker.PhaseOver
			s.pen.writeGrant(&locker.Record{ID: id, Phase: phase})
		} else {
			s.pen.text.Write(text)
		}
		s.spans = append(s.spans, span{id, phase, start, s.pen.text.Len()})
	}
}

func (s *store) log() *slog.Logger { return s.cfg.Log.With("file", filepath.Join(s.path, stateFile)) }

// tell logs that writing has begun to fail, or works again.
func (s *store) tell(err error) {
	was := s.problem.Load()
	switch {
	case err != nil:
		problem := "the state directory cannot be written: " + plain(err).Error()
		s.problem.Store(&problem)
		if was == nil {
			s.log().Warn("the state cannot be written: new locks are refused, and what is held goes on", "err", plain(err), "grants", len(s.live))
		}
	case was != nil:
		s.problem.Store(nil)
		s.log().Info("the state can be written again")
	}
}
