package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// The names of our folder and of the files in it.
const (
	folder      = "locksidecar"
	stateFile   = "state"
	nextFile    = "state.next"
	reserveFile = "reserve"
)

// Config says where the records are and whose they are. All fields but Boot
// must be set.
type Config struct {
	Dir          string        // an existing directory
	Scope        string        // names the store; records of another are not believed
	StoreTimeout time.Duration // of this process
	Log          *slog.Logger
	Boot         string // names the boot of the machine; empty for the kernel's word
}

// Dir is an open state directory. It implements locker.Journal.
type Dir struct {
	store
	lock *os.File // our folder, open and locked
}

// Open locks the directory and reads what an earlier process has left there.
// Nothing of that is changed until the first Write, which must have all that is
// to be kept of it. The errors say what is wrong with the directory; that a
// file in it cannot be understood is no error but logged.
func Open(cfg Config) (*Dir, locker.Saved, error) {
	if cfg.Boot == "" {
		cfg.Boot = bootID()
	}
	d := &Dir{store: store{cfg: cfg, path: filepath.Join(cfg.Dir, folder)}}
	saved, err := d.open()
	if err != nil {
		d.Close()
		return nil, locker.Saved{}, fmt.Errorf("state directory %s: %w", cfg.Dir, err)
	}
	return d, saved, nil
}

func (d *Dir) open() (locker.Saved, error) {
	if err := d.takeFolder(); err != nil {
		return locker.Saved{}, err
	}
	saved, err := d.readState()
	if err != nil {
		return locker.Saved{}, err
	}
	if !inMemory(d.lock) {
		d.cfg.Log.Warn("the state directory is not in memory: what is written there, secret tokens among it, may stay on a disk", "dir", d.cfg.Dir)
	}
	d.init()
	return saved, d.probe()
}

// takeFolder makes our folder where it is missing, and locks it.
func (d *Dir) takeFolder() error {
	switch info, err := os.Stat(d.cfg.Dir); {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it does not exist; mount a memory-backed volume there")
	case err != nil:
		return plain(err)
	case !info.IsDir():
		return errors.New("it is not a directory")
	}
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make the folder %s in it: %w", folder, plain(err))
	}
	// Not through a symbolic link: others may have put it there.
	lock, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("cannot open the folder %s in it: %w", folder, plain(err))
	}
	d.lock = lock
	if err := owned(lock, 0o700); err != nil {
		return fmt.Errorf("the folder %s in it: %w", folder, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.New("another sidecar is using it; each needs one of its own")
		}
		return fmt.Errorf("cannot lock the folder %s in it: %w", folder, err)
	}
	return nil
}

// owned fails if the file belongs to another user, and takes from others what
// permissions they have. A kubelet gives the group of a volume access to all
// that is in it when it sets the volume up, also when it is started anew.
func owned(f *os.File, mode fs.FileMode) error {
	info, err := f.Stat()
	if err != nil {
		return plain(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, and this process is user %d", stat.Uid, os.Geteuid())
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	if err := f.Chmod(mode); err != nil {
		return fmt.Errorf("cannot take it from others: %w", plain(err))
	}
	return nil
}

// readState reads what an earlier process has left.
func (d *Dir) readState() (locker.Saved, error) {
	// O_NONBLOCK: a pipe of that name must not hold up the start.
	file, err := os.OpenFile(filepath.Join(d.path, stateFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return locker.Saved{}, nil
	case err != nil:
		return locker.Saved{}, fmt.Errorf("cannot open the file %s: %w", d.name(stateFile), plain(err))
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return locker.Saved{}, fmt.Errorf("%s is no file", d.name(stateFile))
	}
	if err := owned(file, 0o600); err != nil {
		return locker.Saved{}, fmt.Errorf("the file %s: %w", d.name(stateFile), err)
	}
	f, err := read(file)
	if err != nil {
		return locker.Saved{}, fmt.Errorf("cannot read the file %s: %w", d.name(stateFile), plain(err))
	}
	return d.judge(f), nil
}

// judge says what of a file is to be believed, and logs why not all of it is.
func (d *Dir) judge(f *found) locker.Saved {
	log := d.log()
	if f.newer != 0 {
		log.Warn("the state is of a newer version and is not read: what it holds ends by its TTL", "format", f.newer)
		return locker.Saved{}
	}
	saved := locker.Saved{Records: f.records, Floor: f.floor}
	if f.head != nil {
		saved.StoreTimeout = min(max(f.head.StoreTimeout, 0), longest)
	}
	if f.torn {
		log.Info("the last line of the state was being written and is left out: what it was about had not been done")
	}
	if doubts := f.doubts(d.cfg.Boot, d.cfg.Scope); doubts != "" {
		saved.Doubtful = true
		log.Warn("the state is not believed, since "+doubts+": what was held counts as lost and is given back",
			"grants", len(f.records), "damage", f.damage)
	}
	return saved
}

func (d *Dir) name(file string) string { return filepath.Join(folder, file) }

// Close writes what is left to keep, and gives the directory up.
func (d *Dir) Close() {
	d.end()
	if d.lock != nil {
		_ = d.lock.Close() // and with it the lock
	}
}

// plain leaves out of a file system's error the call and the path, which the
// caller names in its own words.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
