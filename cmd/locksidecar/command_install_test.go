package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// installed checks what was installed and that nothing else is there.
func installed(t *testing.T, dir string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "locksidecar"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was installed is another program (error %v)", err)
	}
	info, err := os.Stat(filepath.Join(dir, "locksidecar"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there is more in it: %v, error %v", left, err)
	}
}

func TestInstallCopiesThisVeryProgramWhateverIsThere(t *testing.T) {
	t.Parallel()
	c := commander{t: t}
	dir := t.TempDir()
	target := filepath.Join(dir, "locksidecar")
	script := c.prepare(exec.Command("sh", "-c", `umask 077; exec locksidecar install "$0"`, dir))
	c.finish(script).want(t, 0, target)
	installed(t, dir)

	// What runs cannot be written to; it goes on undisturbed.
	busy := exec.Command(target, "dev")
	busy.Env = []string{"LOCKSIDECAR_LISTEN=127.0.0.1:0", "LOCKSIDECAR_ADMIN_LISTEN=off"}
	dieWithParent(busy)
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	c.run("install", dir+"/").want(t, 0)
	installed(t, dir)
	if err := busy.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the one that was running: %v", err)
	}
	_ = busy.Process.Kill()
	_ = busy.Wait()

	// The copy copies itself, also over itself and after it was removed.
	again := t.TempDir()
	c.finish(c.prepare(exec.Command(target, "install", dir))).want(t, 0)
	c.finish(c.prepare(exec.Command("sh", "-c", `"$0" install "$1" && rm "$0" && "$1/locksidecar" install "$2"`, target, again, dir))).want(t, 0)
	installed(t, dir)
	installed(t, again)
}

func TestInstallThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := commander{t: t}
	dir := t.TempDir()
	c.run("install", filepath.Join(dir, "missing")).want(t, exitFailure, "no such file or directory")
	if err := os.Mkdir(filepath.Join(dir, "locksidecar"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.run("install", dir).want(t, exitFailure, "is a directory")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.run("install", filepath.Join(dir, "file")).want(t, exitFailure, "not a directory")
	// A file-size limit is as good as a full disk.
	limited := c.prepare(exec.Command("sh", "-c", `trap "" XFSZ; ulimit -f 100; exec locksidecar install "$0"`, t.TempDir()))
	r := c.finish(limited)
	r.want(t, exitFailure, "file too large")
	left, err := os.ReadDir(limited.Args[3])
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// The image holds this program and no shell, no /tmp, and its root cannot be
// written to.
func TestInstallWorksFromAnImageOfNothingButThisProgram(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making a root file system needs root")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no mount namespace can be made here: %s", out)
	}
	root := t.TempDir()
	put(t, root, path, "locksidecar")
	for _, library := range sharedLibraries(t, path) {
		put(t, root, library, library)
	}
	volume := t.TempDir()
	script := `set -e
		cd "$0"; mkdir proc shared
		mount -t proc proc proc; mount --bind "$1" shared
		mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"
		mount -t proc proc "$0/proc"; mount --bind "$1" "$0/shared"
		! touch "$0/x" 2>/dev/null
		exec chroot "$0" /locksidecar install /shared`
	out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, root, volume).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/shared/locksidecar") {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = exec.Command(filepath.Join(volume, "locksidecar"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "locksidecar ") {
		t.Errorf("what was installed says %q, error %v (installed from %s)", out, err, path)
	}
}

// sharedLibraries returns what a program that the race detector is in needs
// beside itself; what is shipped needs nothing.
func sharedLibraries(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		t.Fatalf("%v: %s", err, out)
	}
	var libraries []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			libraries = append(libraries, word)
		}
	}
	return libraries
}

// put copies a file to a path under root.
func put(t *testing.T, root, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to = filepath.Join(root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, to, content)
}
