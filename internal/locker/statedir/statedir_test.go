package statedir

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// journal collects what is logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// opening is how a test opens a directory.
type opening struct {
	Config
	log *journal
}

func at(dir string) opening {
	log := new(journal)
	return opening{Config{
		Dir: dir, Scope: "store", StoreTimeout: 300 * time.Millisecond, Boot: "boot",
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}, log}
}

func (o opening) open(t testing.TB) (*Dir, locker.Saved) {
	t.Helper()
	d, saved, err := Open(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, saved
}

// leave has a process write and be killed: nothing is tidied up.
func leave(t testing.TB, dir string, records ...locker.Record) {
	t.Helper()
	d, _ := at(dir).open(t)
	if err := d.Write(records, locker.Floor{}); err != nil {
		t.Fatal(err)
	}
	die(d)
}

func die(d *Dir) {
	if d.file != nil {
		_ = d.file.Close()
	}
	_ = d.lock.Close()
	d.file, d.live, d.lock = nil, nil, nil // so that Close leaves everything as it is
}

func statePath(dir string) string { return filepath.Join(dir, folder, stateFile) }

func held(id locker.GrantID) locker.Record {
	return locker.Record{
		ID: id, Phase: locker.PhaseDelivered, At: 100, Key: "k", Token: locker.NewToken("ns/pod"), Owner: "w1",
		Fence: 1000 + locker.Fence(id), Asked: 50, AcquiredAt: 77, TTL: time.Minute, ValidUntil: 1e10, Lease: time.Minute, StoreUntil: 2e10, Renew: true,
	}
}

func TestWhatIsWrittenIsReadByTheNextProcess(t *testing.T) {
	full := locker.Record{
		ID: 7, Phase: locker.PhaseGranted, At: 1, Key: "cron/déjà-vu", Token: locker.NewToken("ns/pod"), Owner: "w \"1\" <&>", Note: "line\nbreak\x00 \u2028 …",
		Fence: locker.MaxFence, Asked: 2, AcquiredAt: 3, TTL: 4, MaxHold: 5, MinHold: 6, ValidUntil: 7, Lease: 8, Least: 9, StoreUntil: 10, Renewals: 11,
		Renew: true, Bound: true, Capped: true, Tethered: true, KeepUntil: 12, Revocable: true, Cause: locker.CauseGone, LostAt: 13,
	}
	for i, v := 0, reflect.ValueOf(full); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test does not fill in %s", v.Type().Field(i).Name)
		}
	}
	asking := locker.Record{ID: 8, Phase: locker.PhaseAsking, Key: "k", Token: locker.NewToken("")}
	releasing := locker.Record{ID: 9, Phase: locker.PhaseReleasing, Key: "k", Token: locker.NewToken("x")}
	lost := locker.Record{ID: 10, Phase: locker.PhaseLost, Key: "k", Token: locker.NewToken("x"), Cause: locker.CauseExpired}
	dir := t.TempDir()
	d, saved := at(dir).open(t)
	if !reflect.DeepEqual(saved, locker.Saved{}) {
		t.Errorf("an empty directory holds %+v", saved)
	}
	floor := locker.Floor{Highest: 5, UnixMicro: 6, At: 7}
	for _, batch := range [][]locker.Record{{asking, held(1), held(2)}, {full, releasing}, {{ID: 1, Phase: locker.PhaseOver}, lost}} {
		if err := d.Write(batch, floor); err != nil {
			t.Fatal(err)
		}
	}
	second := held(2)
	second.Renewals, second.Token = 3, locker.NewToken("later")
	if err := d.Write([]locker.Record{second}, floor); err != nil {
		t.Fatal(err)
	}
	want := locker.Saved{Records: []locker.Record{second, full, asking, releasing, lost}, Floor: floor, StoreTimeout: 300 * time.Millisecond}
	die(d)
	for _, how := range []string{"killed", "tidied up", "tidied up again"} {
		o := at(dir)
		d, saved = o.open(t)
		if !reflect.DeepEqual(saved, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", how, saved, want)
		}
		if strings.Contains(o.log.String(), "state is") {
			t.Errorf("%s: warned of %s", how, o.log)
		}
		if err := d.Write(saved.Records, saved.Floor); err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
}

// Without a first write there is nothing that says what is to be kept.
func TestAStartThatFailsLaterLeavesTheStateAsItIs(t *testing.T) {
	dir := t.TempDir()
	leave(t, dir, held(1))
	d, _ := at(dir).open(t)
	d.Close()
	if _, saved := at(dir).open(t); len(saved.Records) != 1 {
		t.Errorf("%d records", len(saved.Records))
	}
}

func TestAfterAnOrderlyEndNoTokenOfWhatIsOverIsLeft(t *testing.T) {
	dir := t.TempDir()
	d, _ := at(dir).open(t)
	kept := held(2)
	if err := d.Write([]locker.Record{held(1), kept, {ID: 1, Phase: locker.PhaseOver}}, locker.Floor{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	text, err := os.ReadFile(statePath(dir))
	if err != nil || strings.Count(string(text), "ls1/") != 1 || !strings.Contains(string(text), kept.Token.Reveal()) {
		t.Errorf("%d tokens are left, %v", strings.Count(string(text), "ls1/"), err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestTwoNeverShareADirectory(t *testing.T) {
	dir := t.TempDir()
	d, _ := at(dir).open(t)
	_, _, err := Open(at(dir).Config)
	if err == nil || !strings.Contains(err.Error(), "another sidecar") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("the second one: %v", err)
	}
	d.Close()
	at(dir).open(t)
}

func TestOnlyWeCanReadTheFiles(t *testing.T) {
	dir := t.TempDir()
	leave(t, dir, held(1))
	modes := func(when string) {
		t.Helper()
		for path, want := range map[string]os.FileMode{filepath.Join(dir, folder): 0o700, statePath(dir): 0o600} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %s: %v, %v, want %v", when, path, info.Mode(), err, want)
			}
		}
	}
	modes("new")
	// As a kubelet does for a volume with an fsGroup.
	if err := os.Chmod(filepath.Join(dir, folder), 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(statePath(dir), 0o660); err != nil {
		t.Fatal(err)
	}
	d, saved := at(dir).open(t)
	modes("opened again")
	if len(saved.Records) != 1 || saved.Doubtful {
		t.Errorf("got %+v", saved)
	}
	if err := d.Write(saved.Records, saved.Floor); err != nil {
		t.Fatal(err)
	}
	modes("written anew")
}

func TestADirectoryThatCannotBeUsedIsAClearError(t *testing.T) {
	file := func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) (path string)
		want    string
	}{
		"missing": {func(_ *testing.T, dir string) string { return filepath.Join(dir, "none") }, "does not exist"},
		"a file": {func(t *testing.T, dir string) string {
			file(t, filepath.Join(dir, "file"))
			return filepath.Join(dir, "file")
		}, "not a directory"},
		"a file in the place of our folder": {func(t *testing.T, dir string) string {
			file(t, filepath.Join(dir, folder))
			return dir
		}, "cannot open the folder"},
		"a link in the place of our folder": {func(t *testing.T, dir string) string {
			if err := os.Symlink(t.TempDir(), filepath.Join(dir, folder)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "cannot open the folder"},
		"a folder in the place of the state": {func(t *testing.T, dir string) string {
			if err := os.MkdirAll(statePath(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "is no file"},
		"a link in the place of the state": {func(t *testing.T, dir string) string {
			if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc/passwd", statePath(dir)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "cannot open the file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.prepare(t, t.TempDir())
			d, _, err := Open(at(path).Config)
			if err == nil {
				d.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %q, want the path and %q", err, c.want)
			}
		})
	}
}

func TestWhatIsOfAnotherBootOrStoreIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"another boot":  {func(c *Config) { c.Boot = "another" }, "another boot"},
		"another store": {func(c *Config) { c.Scope = "another" }, "another store"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			leave(t, dir, held(1))
			o := at(dir)
			c.change(&o.Config)
			d, saved := o.open(t)
			if !saved.Doubtful || len(saved.Records) != 1 {
				t.Errorf("got %+v", saved)
			}
			if log := o.log.String(); !strings.Contains(log, c.want) || !strings.Contains(log, statePath(dir)) || strings.Contains(log, "ls1/") {
				t.Errorf("the log says %s", log)
			}
			// What is written now is of this boot and store.
			if err := d.Write([]locker.Record{held(2)}, locker.Floor{}); err != nil {
				t.Fatal(err)
			}
			die(d)
			o = at(dir)
			c.change(&o.Config)
			if _, saved := o.open(t); saved.Doubtful || len(saved.Records) != 1 || saved.Records[0].ID != 2 {
				t.Errorf("then %+v", saved)
			}
		})
	}
}

func TestTheBootHasAName(t *testing.T) {
	if a, b := bootID(), bootID(); a == "" || a != b {
		t.Errorf("%q, then %q", a, b)
	}
}
