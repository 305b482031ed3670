package statedir

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// sample is a file with a few of everything.
func sample(t testing.TB) (text []byte, records []locker.Record) {
	t.Helper()
	dir := t.TempDir()
	d, _ := at(dir).open(t)
	records = []locker.Record{held(1), held(2), held(3)}
	for i := range records {
		if err := d.Write(records[i:i+1], locker.Floor{Highest: locker.Fence(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	records[0].Phase = locker.PhaseReleasing
	if err := d.Write([]locker.Record{records[0], {ID: 2, Phase: locker.PhaseOver}}, locker.Floor{Highest: 3}); err != nil {
		t.Fatal(err)
	}
	die(d)
	text, err := os.ReadFile(statePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	return text, []locker.Record{records[0], records[2]}
}

// with reads such a file.
func with(t testing.TB, text []byte) (locker.Saved, string) {
	t.Helper()
	found, err := read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	o := at("dir")
	d := Dir{store: store{cfg: o.Config, path: "dir"}}
	saved := d.judge(found)
	if strings.Contains(o.log.String(), "ls1/") {
		t.Errorf("a token is in the log: %s", o.log)
	}
	return saved, o.log.String()
}

// A process can be killed in the middle of a write. What it was about to do has
// not been done then, and all before it counts.
func TestAFileThatWasCutInTheMiddleOfAWriteIsBelieved(t *testing.T) {
	text, _ := sample(t)
	for n := range len(text) {
		saved, log := with(t, text[:n])
		whole := text[:bytes.LastIndexByte(text[:n], '\n')+1]
		want, _ := with(t, whole)
		if !reflect.DeepEqual(saved, want) {
			t.Fatalf("cut after %d of %d bytes: got %+v, want %+v", n, len(text), saved, want)
		}
		if saved.Doubtful && len(whole) > 0 {
			t.Fatalf("cut after %d of %d bytes: not believed: %s", n, len(text), log)
		}
	}
}

// Any other damage may have taken the record of a release or of a shorter
// lease, so no lease counts; but every token that can be read does.
func TestADamagedFileIsUsedOnlyToGiveBack(t *testing.T) {
	text, records := sample(t)
	tokens := make(map[locker.Token]bool)
	for _, r := range append(records, held(2)) {
		tokens[r.Token] = true
	}
	for i := range text[:len(text)-1] { // without the last line's end the file is one that was cut
		broken := bytes.Clone(text)
		broken[i] ^= 0x41
		saved, log := with(t, broken)
		if !saved.Doubtful || !strings.Contains(log, "damage") && !strings.Contains(log, "no head") || !strings.Contains(log, stateFile) {
			t.Fatalf("byte %d of %d: got %+v; the log says %s", i, len(text), saved, log)
		}
		if len(saved.Records) < 1 || len(saved.Records) > 3 {
			t.Fatalf("byte %d: %d records can be read", i, len(saved.Records))
		}
		for _, r := range saved.Records {
			if r.ID != 2 && !tokens[r.Token] {
				t.Fatalf("byte %d: a token that nobody wrote", i)
			}
		}
	}
}

func TestFilesThatAreNotOursAreNoHarm(t *testing.T) {
	text, _ := sample(t)
	sealed := func(json string) string { return fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(json)), json) }
	for name, c := range map[string]struct {
		text    string
		records int
		want    string // in the log
	}{
		"nothing":          {"", 0, "no head"},
		"zeros":            {strings.Repeat("\x00", 10_000), 0, "no head"},
		"text":             {"some\nother\nprogram's\n", 0, "no line of ours"},
		"one endless line": {strings.Repeat("x", 3*longestLine), 0, "too long"},
		"an endless line in between": {string(text) + strings.Repeat("x", 3*longestLine) + "\n" +
			string(text[bytes.IndexByte(text, '\n')+1:]), 2, "too long"},
		"a newer format":         {sealed(`{"head":{"format":2}}`) + string(text), 0, "newer version"},
		"two heads":              {string(text) + string(text), 2, "a head that is not the first line"},
		"a phase of the future":  {string(text) + sealed(`{"grant":{"id":9,"phase":"paused","key":"k","token":"t"}}`), 2, "unknown phase"},
		"a grant without number": {string(text) + sealed(`{"grant":{"phase":"asking","key":"k","token":"t"}}`), 2, "without a number"},
		"a grant without token":  {string(text) + sealed(`{"grant":{"id":9,"phase":"asking","key":"k"}}`), 2, "without key or token"},
		"a lease without fence":  {string(text) + sealed(`{"grant":{"id":9,"phase":"delivered","key":"k","token":"t","ttl":1,"lease":1}}`), 2, "without TTL, lease or fencing token"},
		"a negative TTL":         {string(text) + sealed(`{"grant":{"id":9,"phase":"asking","key":"k","token":"t","ttl":-1}}`), 2, "impossible duration"},
		"a line of another kind": {string(text) + sealed(`{"colour":"red"}`), 2, "neither head, floor nor grant"},
		"JSON of another shape":  {string(text) + sealed(`[1,2]`), 2, "wrong JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			saved, log := with(t, []byte(c.text))
			if len(saved.Records) != c.records || c.records > 0 && !saved.Doubtful {
				t.Errorf("%d records, doubtful %v; want %d", len(saved.Records), saved.Doubtful, c.records)
			}
			if !strings.Contains(log, c.want) || !strings.Contains(log, stateFile) {
				t.Errorf("the log says %q, want %q and the file", log, c.want)
			}
		})
	}
}

// A pipe would hold up whoever opens it, until somebody writes.
func TestAPipeInTheFilesPlaceHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(statePath(dir), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, _, err := Open(at(dir).Config)
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "is no file") {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

func FuzzRead(f *testing.F) {
	text, _ := sample(f)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := read(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		ids := make(map[locker.GrantID]bool)
		for _, r := range found.records {
			if ids[r.ID] || r.Phase == locker.PhaseOver || r.Key == "" {
				t.Fatalf("got %+v", r)
			}
			ids[r.ID] = true
		}
		for _, d := range found.damage {
			if strings.Contains(d, "ls1/") {
				t.Fatalf("a token is in %q", d)
			}
		}
	})
}
