package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// again starts the process that comes after one which has ended, with the same
// settings but for those given.
func (p *proc) again(t testing.TB, env ...string) *proc {
	t.Helper()
	next := launch{Env: append(append([]string{}, p.env...), env...)}.serve(t)
	next.record.succeeds(next, p)
	return next
}

func wantFence(t *testing.T, a answer, fence locker.Fence) answer {
	t.Helper()
	if a.JSON.Fence != fence {
		t.Fatalf("another grant: %v, want fencing token %d", a, fence)
	}
	return a
}

func TestAKilledProcessWithAStateDirectoryTakesItsLeasesUpAgain(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	first := on(t, redis, "STATE_DIR="+t.TempDir(), "HOLDER=one")
	renewed := first.POST("renewed", "ttl=5s", "owner=w1", "note=nightly").Finally(t, http.StatusCreated, "held")
	byCurl, err := curl("-X", "POST", "-d", "ttl=60s", first.URL+"/locks/by-curl")
	if err != nil {
		t.Fatal(err, byCurl)
	}
	first.POST("gone", "ttl=60s").Finally(t, http.StatusCreated, "held")
	first.DELETE("gone").Finally(t, http.StatusNoContent, "")
	first.awaitRenewals("renewed", 1, 10*time.Second)
	first.Kill()
	token, _ := redis.Get("lock:renewed")

	// A container that is started anew may have another name.
	second := first.again(t, "HOLDER=two")
	second.AwaitLog(`"msg":"taken up from the state directory","held":2`)
	wantFence(t, second.GET("renewed", "owner=w1").Want(t, http.StatusOK, ""), renewed.JSON.Fence)
	if a := second.POST("renewed", "owner=w1"); a.Status != http.StatusOK || a.JSON.Fence != renewed.JSON.Fence || a.JSON.Note != "nightly" {
		t.Errorf("the owner's POST again: %v", a)
	}
	second.awaitState("renewed", 3*time.Second, http.StatusOK, "held")
	second.awaitRenewals("renewed", 4, 20*time.Second) // longer than the lease that was taken up
	wantValue(t, redis, "renewed", token)
	second.GET("by-curl").Want(t, http.StatusOK, "held")
	second.GET("gone").Want(t, http.StatusNotFound, "not_held")
	second.DELETE("renewed", fmt.Sprint("fencing_token=", renewed.JSON.Fence)).Finally(t, http.StatusNoContent, "")
	second.DELETE("by-curl").Finally(t, http.StatusNoContent, "")
	awaitFree(t, redis, "renewed", time.Second)
	awaitFree(t, redis, "by-curl", time.Second)
}

func TestAProcessThatWasAwayForTooLongSaysLost(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	first := on(t, redis, "STATE_DIR="+t.TempDir())
	held := first.POST("k", "ttl=1s", "owner=w1").Finally(t, http.StatusCreated, "held")
	other := first.POST("other", "ttl=1s").Finally(t, http.StatusCreated, "held")
	first.Kill()
	awaitFree(t, redis, "k", 10*time.Second)
	awaitFree(t, redis, "other", 10*time.Second)
	rival := on(t, redis)
	wantFenceAbove(t, rival.POST("k", "ttl=60s").Finally(t, http.StatusCreated, "held"), held)

	second := first.again(t)
	for range 2 {
		if a := second.GET("k", "owner=w1").Want(t, http.StatusGone, "lost"); a.JSON.Cause != string(locker.CauseExpired) || a.JSON.Fence != held.JSON.Fence {
			t.Errorf("GET: %v", a)
		}
	}
	// It is remembered across the next crash as well, until it was told by a DELETE.
	second.Kill()
	third := second.again(t)
	if a := third.DELETE("other", fmt.Sprint("fencing_token=", other.JSON.Fence)).Want(t, http.StatusGone, "lost"); a.JSON.Cause != string(locker.CauseExpired) {
		t.Errorf("DELETE: %v", a)
	}
	third.GET("other", fmt.Sprint("fencing_token=", other.JSON.Fence)).Want(t, http.StatusNotFound, "not_held")
	third.GET("k", "owner=w1").Want(t, http.StatusGone, "lost")
	rival.GET("k").Want(t, http.StatusOK, "held")
}

func TestABoundLockIsReleasedByTheNextProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	first := on(t, redis, "STATE_DIR="+t.TempDir())
	w := first.wire()
	w.send(request(http.MethodPost, "/locks/k", "ttl=60s&bind=connection"))
	first.awaitState("k", 5*time.Second, http.StatusOK, "held")
	fence := first.GET("k").JSON.Fence
	first.Kill()
	second := first.again(t)
	awaitFree(t, redis, "k", 10*time.Second)
	if a := second.GET("k", fmt.Sprint("fencing_token=", fence)).Want(t, http.StatusGone, "lost"); a.JSON.Cause != string(locker.CauseShutdown) {
		t.Errorf("GET: %v", a)
	}
}

// What SHUTDOWN_MODE=guarded leaves to its TTL is the one thing that an orderly
// end leaves in the directory; a process that is started in time goes on with
// it, since its holder may be at work.
func TestAfterAnOrderlyEndOnlyWhatWasLeftToItsTTLIsTakenUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	first := on(t, redis, "STATE_DIR="+dir, "SHUTDOWN_MODE=guarded", "SHUTDOWN_GRACE=1s")
	kept := first.POST("kept", "ttl=10s").Finally(t, http.StatusCreated, "held") // its connection stays open
	if out, err := curl("-X", "POST", "-d", "ttl=10s", first.URL+"/locks/dropped"); err != nil {
		t.Fatal(err, out)
	}
	first.Signal(syscall.SIGTERM)
	if code := first.WaitExit(10 * time.Second); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if text := stateText(t, dir); strings.Count(text, `"grant"`) != 1 || !strings.Contains(text, `"key":"kept"`) {
		t.Errorf("the directory holds %d grants", strings.Count(text, `"grant"`))
	}
	second := first.again(t)
	wantFence(t, second.awaitState("kept", 3*time.Second, http.StatusOK, "held"), kept.JSON.Fence)
	second.GET("dropped").Want(t, http.StatusNotFound, "not_held")
	second.awaitRenewals("kept", 1, 10*time.Second) // by then no request of the first can be on its way
	second.DELETE("kept").Finally(t, http.StatusNoContent, "")
	second.Signal(syscall.SIGTERM)
	second.WaitExit(5 * time.Second)
	if text := stateText(t, dir); strings.Contains(text, `"grant"`) {
		t.Errorf("the directory is not empty: %s", randomPart.ReplaceAllString(text, "[token]"))
	}
}

// stateText returns what is in the files of a state directory.
func stateText(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestAStateDirectoryThatCannotBeUsedIsAClearErrorAtTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	taken := t.TempDir()
	owner := on(t, redis, "STATE_DIR="+taken)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		code int
		want string
	}{
		"missing":               {file + "-not", exitSettings, "LOCKSIDECAR_STATE_DIR " + file + "-not does not exist; mount a memory-backed volume there"},
		"not a directory":       {file, exitSettings, "LOCKSIDECAR_STATE_DIR " + file + " is not a directory"},
		"in use":                {taken, exitFailure, "state directory " + taken + ": another sidecar is using it"},
		"nothing can be made":   {"/sys", exitFailure, "state directory /sys: cannot make the folder"}, // also by root
		"relative, so anywhere": {"state", exitSettings, "is not an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			code, output := launch{Env: []string{"REDIS_ADDRS=" + redis.Addr(), "STATE_DIR=" + c.dir}}.fail(t)
			if code != c.code || !strings.Contains(output, c.want) {
				t.Errorf("exit code %d, want %d and %q; the output is\n%s", code, c.code, c.want, output)
			}
		})
	}
	owner.POST("k").Finally(t, http.StatusCreated, "held")
}

// Records that cannot be understood are no reason not to start.
func TestADamagedStateIsUsedToGiveBackAndLogged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	first := on(t, redis, "STATE_DIR="+dir)
	damaged := first.POST("damaged", "ttl=60s").Finally(t, http.StatusCreated, "held")
	first.POST("whole", "ttl=60s").Finally(t, http.StatusCreated, "held")
	first.Kill()
	path := filepath.Join(dir, "locksidecar", "state")
	text := strings.Replace(stateText(t, dir), `"key":"damaged"`, `"key":"dAmaged"`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	second := first.again(t)
	second.AwaitLog(path)
	awaitFree(t, redis, "whole", 10*time.Second)
	second.GET("damaged", fmt.Sprint("fencing_token=", damaged.JSON.Fence)).Want(t, http.StatusGone, "lost")
	if err := os.WriteFile(path, []byte("\x00\x01 nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	second.Kill()
	third := second.again(t)
	third.POST("new", "ttl=60s").Finally(t, http.StatusCreated, "held")
}

// Nothing may be told that a restart would not know.
func TestWithoutSpaceForRecordsNewLocksAreRefusedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	// A limit on the size of files stands for a volume that is full.
	dir := t.TempDir()
	p := launch{
		Env:  []string{"REDIS_ADDRS=" + redis.Addr(), "STATE_DIR=" + dir},
		Wrap: []string{"sh", "-c", `trap "" XFSZ; ulimit -f 96; exec "$0" "$@"`}, // blocks of 512 bytes
	}.serve(t)
	held := p.POST("k", "ttl=4s").Finally(t, http.StatusCreated, "held")
	more := 0
	eventually(t, 40*time.Second, "the directory is full", func() bool {
		a := p.POST(fmt.Sprint("more", more+1), "ttl=60s")
		if a.Is(http.StatusCreated, "held") {
			more++
		}
		return a.Is(http.StatusServiceUnavailable, "not_recorded")
	})
	refused := p.POST("one-more", "ttl=60s")
	if !refused.Is(http.StatusServiceUnavailable, "not_recorded") || refused.Header.Get("Retry-After") == "" {
		t.Fatalf("the answer is %v", refused)
	}
	if pttl := redis.PTTL("lock:one-more"); pttl != redistest.NoKey {
		t.Errorf("it was taken all the same: PTTL %v", pttl)
	}
	if status, text := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "state directory") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	p.awaitRenewals("k", 4, 20*time.Second)
	p.DELETE("k", fmt.Sprint("fencing_token=", held.JSON.Fence)).Finally(t, http.StatusNoContent, "")
	awaitFree(t, redis, "k", time.Second)

	// Where locks were given back there is room for others.
	for i := range more / 2 {
		p.DELETE(fmt.Sprint("more", i+1)).Finally(t, http.StatusNoContent, "")
	}
	p.POST("one-more", "ttl=60s").Finally(t, http.StatusCreated, "held")
	if status, text := p.Ready(); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
}
