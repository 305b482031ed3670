package statedir

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// volume is a folder with little space.
type volume struct {
	path  string
	space int64
}

func (v *volume) left(t testing.TB) int64 {
	left := v.space
	entries, err := os.ReadDir(v.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		left -= info.Size()
	}
	return left
}

// cramped is a file on a volume. As a kernel does, it writes what still fits.
type cramped struct {
	*os.File
	t testing.TB
	v *volume
}

func (c cramped) Write(p []byte) (int, error) {
	return c.fit(p, c.File.Write)
}

func (c cramped) WriteAt(p []byte, at int64) (int, error) {
	return c.fit(p, func(p []byte) (int, error) { return c.File.WriteAt(p, at) })
}

func (c cramped) fit(p []byte, write func([]byte) (int, error)) (int, error) {
	if left := c.v.left(c.t); left < int64(len(p)) {
		n, _ := write(p[:max(0, left)])
		return n, &os.PathError{Op: "write", Path: c.Name(), Err: syscall.ENOSPC}
	}
	return write(p)
}

// on opens a directory on a volume with so much space.
func on(t testing.TB, o opening, space int64) (*Dir, *volume) {
	t.Helper()
	d, _ := o.open(t)
	v := &volume{path: filepath.Join(o.Dir, folder), space: space}
	d.make = func(path string) (file, error) {
		f, err := makeFile(path)
		if err != nil {
			return nil, err
		}
		return cramped{f.(*os.File), t, v}, nil
	}
	return d, v
}

func ids(saved locker.Saved) []locker.GrantID {
	var ids []locker.GrantID
	for _, r := range saved.Records {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestTheFileStaysSmallHoweverMuchIsWritten(t *testing.T) {
	dir := t.TempDir()
	d, _ := at(dir).open(t)
	live := []locker.Record{held(1), held(2)}
	if err := d.Write(live, locker.Floor{}); err != nil {
		t.Fatal(err)
	}
	largest := int64(0)
	for id := locker.GrantID(10); id < 5000; id++ {
		batch := []locker.Record{held(id), {ID: id, Phase: locker.PhaseOver}}
		if err := d.Write(batch, locker.Floor{Highest: locker.Fence(id)}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(statePath(dir))
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	if largest > leastGarbage+10<<10 {
		t.Errorf("it grew to %d bytes", largest)
	}
	die(d)
	if _, saved := at(dir).open(t); saved.Doubtful || !reflect.DeepEqual(saved.Records, live) || saved.Floor.Highest != 4999 {
		t.Errorf("got %+v", saved)
	}
}

func TestOnAFullVolumeNothingNewIsTakenAndNothingIsForgotten(t *testing.T) {
	o := at(t.TempDir())
	d, v := on(t, o, reserveSize+10<<10)
	var refused error
	id := locker.GrantID(0)
	for refused == nil {
		id++
		refused = d.Write([]locker.Record{held(id)}, locker.Floor{})
	}
	if !errors.Is(refused, syscall.ENOSPC) || d.Problem() == "" || !strings.Contains(o.log.String(), "new locks are refused") {
		t.Fatalf("refused with %v; the problem is %q, the log says %s", refused, d.Problem(), o.log)
	}
	held1 := d.live[1]
	write := func(r locker.Record) error { return d.Write([]locker.Record{r}, locker.Floor{Highest: 99}) }
	asking := locker.Record{ID: id + 1, Phase: locker.PhaseAsking, Key: "k", Token: locker.NewToken("new")}
	if err := write(asking); err == nil {
		t.Error("a new grant was taken")
	}
	releasing := held(1)
	releasing.Phase = locker.PhaseReleasing
	if err := write(releasing); err == nil || d.live[1] != held1 {
		t.Errorf("a release was written to a full volume: %v", err)
	}
	if n := strings.Count(o.log.String(), "new locks are refused"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}

	// With more space, what was owed is written with the next record.
	v.space += 10 << 10
	if err := write(asking); err != nil || d.Problem() != "" {
		t.Fatalf("with space again: %v, %q", err, d.Problem())
	}
	die(d)
	_, saved := at(o.Dir).open(t)
	if saved.Doubtful || saved.Records[0].Phase != locker.PhaseReleasing || saved.Records[0].Token != releasing.Token || saved.Floor.Highest != 99 {
		t.Errorf("got %+v", saved)
	}
	if got := ids(saved); got[len(got)-1] != asking.ID {
		t.Errorf("got %v", got)
	}
}

func TestTheFloorOutlivesAnEndOnAVolumeThatWasFull(t *testing.T) {
	o := at(t.TempDir())
	d, v := on(t, o, reserveSize+10<<10)
	for id := locker.GrantID(1); d.Write([]locker.Record{held(id)}, locker.Floor{Highest: 99}) == nil; id++ {
	}
	v.space *= 4 // and nothing is written any more
	d.Close()
	if _, saved := at(o.Dir).open(t); saved.Floor.Highest != 99 {
		t.Errorf("the floor is %+v", saved.Floor)
	}
}

// Nothing can be appended to say that locks are over, and there is no room for
// a second file: but for what is kept in reserve, that would stay so for ever.
func TestAFullVolumeHasSpaceAgainOnceLocksAreGivenBack(t *testing.T) {
	o := at(t.TempDir())
	d, v := on(t, o, reserveSize+100<<10)
	last := locker.GrantID(0)
	take := func(id locker.GrantID) error {
		r := held(id)
		r.Phase = locker.PhaseAsking
		return d.Write([]locker.Record{r}, locker.Floor{})
	}
	for take(last+1) == nil {
		last++
	}
	for id := range last {
		_ = d.Write([]locker.Record{{ID: id + 1, Phase: locker.PhaseOver}}, locker.Floor{})
	}
	if err := take(last + 10); err != nil {
		t.Fatalf("with every lock given back: %v", err)
	}
	if _, err := os.Stat(filepath.Join(v.path, reserveFile)); err != nil {
		t.Errorf("nothing is in reserve any more: %v", err)
	}
	die(d)
	if _, saved := at(o.Dir).open(t); !slices.Equal(ids(saved), []locker.GrantID{last + 10}) {
		t.Errorf("got %v", ids(saved))
	}
}

// Also one that is full from the start: what was held before is not forgotten.
func TestAStartOnAFullVolumeKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	leave(t, dir, held(1), held(2))
	if err := os.Remove(filepath.Join(dir, folder, reserveFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	d, v := on(t, at(dir), 0)
	d.giveReserve()
	if err := d.Write([]locker.Record{held(1), held(2)}, locker.Floor{}); err == nil {
		t.Fatal("written to a full volume")
	}
	if text, err := os.ReadFile(statePath(dir)); err != nil || strings.Count(string(text), `"delivered"`) != 2 {
		t.Fatalf("the old file is not as it was: %v", err)
	}
	v.space = 1 << 20
	if err := d.Write([]locker.Record{held(3)}, locker.Floor{}); err != nil {
		t.Fatal(err)
	}
	die(d)
	if _, saved := at(dir).open(t); !slices.Equal(ids(saved), []locker.GrantID{1, 2, 3}) {
		t.Errorf("got %v", ids(saved))
	}
}

// Whatever is written, on a volume that is full now and then, and whenever the
// process is killed: the next one reads what the last one was told is kept.
func TestAnySequenceOfWritesIsReadAsItWas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		kept := make(map[locker.GrantID]locker.Record)  // in the file
		owed := make(map[locker.GrantID]*locker.Record) // to be there once something was written
		open := func() (*Dir, *volume) {
			d, v := on(t, at(dir), 1<<20)
			var all []locker.Record
			for _, r := range kept {
				all = append(all, r)
			}
			if err := d.Write(all, locker.Floor{}); err != nil {
				rt.Fatal(err)
			}
			return d, v
		}
		look := func() locker.Saved {
			d, saved, err := Open(at(dir).Config)
			if err != nil {
				rt.Fatal(err)
			}
			d.Close()
			return saved
		}
		d, v := open()
		next := locker.GrantID(1)
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				var batch []locker.Record
				for range rapid.IntRange(1, 4).Draw(rt, "records") {
					r := held(next)
					if known := slices.Sorted(maps.Keys(kept)); len(known) > 0 && rapid.Bool().Draw(rt, "known") {
						r = held(rapid.SampledFrom(known).Draw(rt, "id"))
					} else {
						next++
					}
					r.Phase = rapid.SampledFrom([]locker.Phase{locker.PhaseAsking, locker.PhaseDelivered, locker.PhaseReleasing, locker.PhaseOver}).Draw(rt, "phase")
					r.Note = strings.Repeat("x", rapid.IntRange(0, 20_000).Draw(rt, "size"))
					if r.Phase == locker.PhaseOver {
						r = locker.Record{ID: r.ID, Phase: r.Phase}
					}
					batch = append(batch, r)
				}
				err := d.Write(batch, locker.Floor{})
				if err == nil {
					for id, r := range owed {
						apply(kept, id, r)
					}
					clear(owed)
				}
				for i, r := range batch {
					switch {
					case err == nil:
						apply(kept, r.ID, &batch[i])
					case r.Phase != locker.PhaseAsking:
						owed[r.ID] = &batch[i]
					}
				}
			},
			"fill up":    func(*rapid.T) { v.space = 0 },
			"make space": func(*rapid.T) { v.space = 1 << 20 },
			"kill": func(rt *rapid.T) {
				die(d)
				clear(owed)
				saved := look()
				if saved.Doubtful || len(saved.Records) != len(kept) {
					rt.Fatalf("read %v, want %v", ids(saved), slices.Sorted(maps.Keys(kept)))
				}
				for _, r := range saved.Records {
					if !reflect.DeepEqual(r, kept[r.ID]) {
						rt.Fatalf("grant %d: read %s, want %s", r.ID, brief(r), brief(kept[r.ID]))
					}
				}
				d, v = open()
			},
		})
		d.Close()
	})
}

func brief(r locker.Record) string {
	return fmt.Sprintf("phase %d with a note of %d bytes", r.Phase, len(r.Note))
}

func apply(kept map[locker.GrantID]locker.Record, id locker.GrantID, r *locker.Record) {
	if r.Phase == locker.PhaseOver {
		delete(kept, id)
	} else {
		kept[id] = *r
	}
}
