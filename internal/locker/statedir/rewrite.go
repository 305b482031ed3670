package statedir

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// isFull tells whether the error is one that passes when there is space again.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// reserve keeps some space for rewrite, if there is any.
func (s *store) reserve() {
	file, err := s.create(reserveFile)
	if err != nil {
		return
	}
	_, err = file.Write(make([]byte, reserveSize))
	if closed := file.Close(); err != nil || closed != nil {
		s.giveReserve()
	}
}

func (s *store) giveReserve() bool { return s.remove(reserveFile) == nil }

// rewrite writes a new file with what is not out of date and the pen's text,
// and puts it in the place of the old one. If it fails, the old one is as it
// was.
func (s *store) rewrite() error {
	err := s.writeNext()
	if isFull(err) && s.giveReserve() {
		err = s.writeNext()
		defer s.reserve()
	}
	s.tried = math.MaxInt64
	if err != nil {
		s.tried = s.used
	}
	return err
}

func (s *store) writeNext() error {
	next, err := s.create(nextFile)
	if err != nil {
		return err
	}
	live, end, err := s.copyTo(next)
	if err == nil {
		err = os.Rename(filepath.Join(s.path, nextFile), filepath.Join(s.path, stateFile))
	}
	if err != nil {
		_ = next.Close()
		_ = s.remove(nextFile)
		return err
	}
	if s.file != nil {
		_ = s.file.Close()
	}
	s.file, s.bad, s.live = next, false, live
	s.take(end)
	s.size = end + int64(s.pen.text.Len())
	return nil
}

// copyTo writes a whole file. It returns where the records are that it has
// copied, and where the pen's text begins.
func (s *store) copyTo(next file) (live map[locker.GrantID]place, end int64, err error) {
	to := bufio.NewWriterSize(next, 64<<10)
	top := newPen()
	top.write(line{Head: &head{Format: format, Boot: s.cfg.Boot, Scope: s.cfg.Scope, StoreTimeout: s.cfg.StoreTimeout}})
	top.writeFloor(s.floor)
	end = int64(top.text.Len())
	_, _ = to.Write(top.text.Bytes()) // Flush tells of its error, as of the following

	live = make(map[locker.GrantID]place, len(s.live))
	type kept struct {
		id locker.GrantID
		place
	}
	inOrder := make([]kept, 0, len(s.live))
	for id, p := range s.live {
		inOrder = append(inOrder, kept{id, p})
	}
	slices.SortFunc(inOrder, func(a, b kept) int { return cmp.Compare(a.at, b.at) })
	var from *bufio.Reader
	if s.file != nil {
		from = bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.size), longestLine)
	}
	read := int64(0)
	for _, k := range inOrder {
		if _, err := from.Discard(int(k.at - read)); err != nil {
			return nil, 0, err
		}
		text, err := from.Peek(int(k.length))
		if err != nil {
			return nil, 0, err
		}
		_, _ = to.Write(text)
		read = k.at
		live[k.id] = place{end, k.length}
		end += int64(k.length)
	}
	_, _ = to.Write(s.pen.text.Bytes())
	return live, end, to.Flush()
}

// end leaves in the file what is to be kept, and closes it. Without a write
// before, what is there stays as it is.
func (s *store) end() {
	if s.live == nil {
		return // it was never opened
	}
	s.giveReserve()
	if s.file == nil {
		return
	}
	s.pen.text.Reset()
	s.spans = s.spans[:0]
	s.layOutDebts()
	if err := s.rewrite(); err != nil {
		s.log().Warn("the state could not be tidied up: it holds grants that are over", "err", plain(err))
	}
	_ = s.file.Close()
}
