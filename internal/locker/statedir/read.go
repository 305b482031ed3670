package statedir

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// longestLine is far above what a grant with the longest of everything takes.
const longestLine = 64 << 10

// found is what a file holds.
type found struct {
	head    *head
	floor   locker.Floor
	records []locker.Record // one a grant, by number
	torn    bool            // the last line was being written
	newer   int             // the file's format, if it is one that is not read
	damage  []string        // what cannot be read, at most a few
}

const mostDamage = 5

func (f *found) damaged(number int, why error) {
	if len(f.damage) < mostDamage {
		f.damage = append(f.damage, fmt.Sprintf("line %d: %v", number, why))
	}
}

// read reads a file to its end. It fails only if reading does.
func read(from io.Reader) (*found, error) {
	f := new(found)
	records := make(map[locker.GrantID]locker.Record)
	lines := bufio.NewReaderSize(from, longestLine)
	for number := 1; f.newer == 0; number++ {
		text, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			f.torn = len(text) > 0
			f.records = slices.SortedFunc(maps.Values(records), func(a, b locker.Record) int { return cmp.Compare(a.ID, b.ID) })
			return f, nil
		case errors.Is(err, bufio.ErrBufferFull):
			f.damaged(number, errors.New("too long"))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		if err := f.take(bytes.TrimSuffix(text, []byte("\n")), number, records); err != nil {
			f.damaged(number, err)
		}
	}
	return f, nil
}

// take takes in one line.
func (f *found) take(text []byte, number int, records map[locker.GrantID]locker.Record) error {
	l, err := parse(text)
	switch {
	case err != nil:
		return err
	case l.Head != nil && number > 1:
		return errors.New("a head that is not the first line")
	case l.Head != nil && l.Head.Format > format:
		f.newer = l.Head.Format
	case l.Head != nil:
		f.head = l.Head
	case number == 1:
		err = errors.New("no head") // it may be a grant all the same
	}
	switch {
	case l.Grant != nil:
		r, wrong := l.Grant.record()
		switch {
		case wrong != nil:
			return wrong
		case r.Phase == locker.PhaseOver:
			delete(records, r.ID)
		default:
			records[r.ID] = r
		}
	case l.Floor != nil:
		f.floor = locker.Floor(*l.Floor)
	case l.Head == nil:
		return errors.New("neither head, floor nor grant")
	}
	return err
}

// doubts says why no lease of the file may be believed, or nothing.
func (f *found) doubts(boot, scope string) string {
	switch {
	case len(f.damage) > 0:
		return "it is damaged"
	case f.head == nil:
		return "it has no head"
	case boot == "" || f.head.Boot != boot:
		return "it is of another boot of this machine, or of another machine"
	case f.head.Scope != scope:
		return "it belongs to another store, database or prefix"
	}
	return ""
}
