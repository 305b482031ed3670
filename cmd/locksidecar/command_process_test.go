package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// result is how a command has ended.
type result struct {
	code           int // -1 if by a signal
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d, output %q, errors %q", r.code, r.stdout, r.stderr)
}

// want fails the test unless the exit code is the one given and each of the
// words is in the output or the errors; it returns the result.
func (r result) want(t testing.TB, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("%v; want exit code %d", r, code)
	}
	for _, word := range words {
		if !strings.Contains(r.stdout, word) && !strings.Contains(r.stderr, word) {
			t.Fatalf("%v; want %q in it", r, word)
		}
	}
	return r
}

// commander runs commands of the real program.
type commander struct {
	t   testing.TB
	env []string // NAME=value without the prefix, as in [launch]
}

// cli returns what runs commands that ask the process, at the URL that its
// doors tell.
func (p *proc) cli(env ...string) commander {
	p.t.Helper()
	at := p.URL
	for _, listening := range p.lines("listening") {
		if door := listening["api"].([]any)[0].(string); strings.HasPrefix(door, "/") {
			at = "unix://" + door
		}
	}
	return commander{p.t, append([]string{"URL=" + at}, env...)}
}

// command returns a command that is ready to be started.
func (c commander) command(args ...string) *exec.Cmd {
	c.t.Helper()
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.prepare(exec.Command(path, args...))
}

// prepare gives a command the environment, and the program's folder in PATH.
func (c commander) prepare(cmd *exec.Cmd) *exec.Cmd {
	c.t.Helper()
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Dir = c.t.TempDir()
	cmd.Env = []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "GORACE=atexit_sleep_ms=0"}
	for _, setting := range c.env {
		cmd.Env = append(cmd.Env, envPrefix+"_"+setting)
	}
	dieWithParent(cmd)
	return cmd
}

// run runs a command to its end.
func (c commander) run(args ...string) result {
	c.t.Helper()
	return c.finish(c.command(args...))
}

// shell runs a script of sh, in which locksidecar is the program.
func (c commander) shell(script string) result {
	c.t.Helper()
	return c.finish(c.prepare(exec.Command("sh", "-c", script)))
}

// finish runs a command that is ready; what it has no output for is collected.
func (c commander) finish(cmd *exec.Cmd) result {
	c.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// fields reads an answer in JSON.
func fields(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return m
}

func TestALocksLifeByCommandsOverEachDoor(t *testing.T) {
	t.Parallel()
	token := tokenFile(t)
	for name, tt := range map[string]struct{ sidecar, commands []string }{
		"TCP":                  {nil, nil},
		"TCP with a token":     {[]string{"API_TOKEN_FILE=" + token}, []string{"API_TOKEN_FILE=" + token}},
		"a Unix socket":        {[]string{"LISTEN=unix://" + filepath.Join(socketDir(t), "a socket")}, nil},
		"a socket and a token": {[]string{"LISTEN=unix://" + filepath.Join(socketDir(t), "s"), "API_TOKEN_FILE=" + token}, []string{"API_TOKEN_FILE=" + token}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch{Args: []string{"dev"}, Env: tt.sidecar}.serve(t).cli(tt.commands...)
			c.run("wait", "--max", "5s").want(t, 0)
			c.run("wait", "--max", "0", "--store").want(t, 0)
			const key = "reports:nightly/é?x%41"
			granted := fields(t, c.run("lock", key, "--owner", "w1", "--note", "it's <b>", "--ttl", "1m", "-o", "json").want(t, 0).stdout)
			if granted["key"] != key || granted["note"] != "it's <b>" || granted["ttl_ms"] != 60000.0 {
				t.Errorf("%v", granted)
			}
			fence := fmt.Sprintf("%.0f", granted["fencing_token"])

			c.run("lock", key).want(t, 75, "fencing_token=\n(exit 75)\n", "the lock is held", "Held by")
			c.run("lock", key, "--owner", "w1", "-o", "text").want(t, 0, "held it already", fence)
			c.run("status", key).want(t, 0, "it's <b>", "w1", fence)
			c.run("status", key, "--fencing-token", fence, "-o", "env").want(t, 0, `note='it'\''s <b>'`)
			c.run("status", key, "--owner", "w2").want(t, 75, "held here for another worker")
			if quiet := c.run("status", "-q", key, "--owner", "w2").want(t, 75); quiet.stdout+quiet.stderr != "" {
				t.Errorf("it is not quiet: %v", quiet)
			}
			c.run("status", "free").want(t, 75, "free")
			c.run("extend", key, "--fencing-token", fence, "--ttl", "2m", "--note", "more").want(t, 0, "of 2m", "more")
			c.run("extend", key, "--owner", "w2").want(t, 75, "another worker's")
			c.run("extend", "free").want(t, 75, "does not hold")
			c.run("ls").want(t, 0, "KEY", key, "held", "w1", "more", fence)
			if list := fields(t, c.run("ls", "-o", "json").want(t, 0).stdout); len(list["locks"].([]any)) != 1 {
				t.Errorf("%v", list)
			}
			c.run("unlock", key).want(t, 75, "Give the handle")
			c.run("unlock", key, "--fencing-token", fence).want(t, 0, "released", key)
			c.run("unlock", key, "--fencing-token", fence).want(t, 75, "does not hold")

			c.run("lock", "a", "--owner", "w1").want(t, 0)
			c.run("lock", "b", "--owner", "w1").want(t, 0)
			c.run("lock", "c", "--min-hold", "1m").want(t, 0)
			if done := c.run("unlock", "--owner", "w1", "-o", "json").want(t, 0).stdout; len(fields(t, done)["released"].([]any)) != 2 {
				t.Error(done)
			}
			c.run("unlock", "--owner", "w1").want(t, 0)
			c.run("unlock", "c", "-o", "json").want(t, 0, `{"released":["c"],"unconfirmed":[]}`)
			c.run("status", "c").want(t, 75, "minimum hold", "free in")
			c.run("unlock", "--all").want(t, 0)
			c.run("drain").want(t, 0)
			c.run("lock", "late").want(t, 69, "(exit 69)", "refuse new locks")
			c.run("wait", "--max", "0").want(t, 69, "no requests for locks any more")
			c.run("quit").want(t, 0)
			c.run("wait", "--max", "0s").want(t, 69)
		})
	}
}

func TestACommandLineThatCannotMeanWhatItSaysIsRefused(t *testing.T) {
	t.Parallel()
	c := commander{t, []string{"URL=unix:///nonexistent/s"}}
	for line, want := range map[string]string{
		"lock":                          "KEY is missing",
		"lock a b":                      `what is "b"?`,
		"lock k --ttl 30":               "write 30s for seconds",
		"lock k --wait soon":            "no duration",
		"lock k --wait -1s":             "below 0",
		"lock k --owner=":               "is the variable set?",
		"status k --owner=":             "is the variable set?",
		"unlock k --fencing-token=":     "whole number above 0",
		"unlock k --fencing-token=0":    "whole number above 0",
		"unlock":                        "say which",
		"unlock --force":                "KEY is missing",
		"unlock --fencing-token 7":      "KEY is missing",
		"unlock --owner w --all":        "contradict each other",
		"unlock k --all":                "without a KEY",
		"unlock k --fencing-tokn 7":     "did you mean --fencing-token?",
		"ls k":                          "takes no arguments",
		"wait 30s":                      "takes no arguments",
		"install":                       "DIR is missing",
		"ls --url localhost:5625":       "--url: the URL of a sidecar is http://host:port or unix:///path; the scheme is missing",
		"ls --url https://h --owner=w ": "unknown flag: --owner",
	} {
		r := c.run(strings.Fields(line)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %v; want %d and %q", line, r, exitUsage, want)
		}
	}
	c.env = []string{"URL=https://user:hunter2hunter2@localhost"}
	if r := c.run("ls").want(t, exitUsage, "$LOCKSIDECAR_URL: "); strings.Contains(r.stderr, "hunter2") {
		t.Error(r)
	}
}

func TestWhatTheAPIRefusesIsAUsageErrorToo(t *testing.T) {
	t.Parallel()
	c := launch{Args: []string{"dev"}}.serve(t).cli()
	c.run("lock", "a//b").want(t, exitUsage, "empty segment")
	c.run("lock", "..").want(t, exitUsage, `".."`)
	c.run("lock", "").want(t, exitUsage, "the key is empty")
	c.run("lock", "k", "--ttl", "10ms").want(t, exitUsage, "from 1s to 24h")
	c.run("lock", "k", "--note", "a\xffb").want(t, exitUsage, "UTF-8")
	c.run("ls", "-o", "json").want(t, 0, `{"locks":[]}`)
}

func TestWithoutASidecarACommandSaysWhatItTried(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(socketDir(t), "s")
	c := commander{t, []string{"URL=unix://" + socket}}
	for _, args := range [][]string{{"lock", "k"}, {"extend", "k"}, {"unlock", "k"}, {"status", "k"}, {"ls"}, {"drain"}, {"quit"}, {"wait", "--max", "200ms"}} {
		c.run(args...).want(t, exitUnavailable, socket, "$LOCKSIDECAR_URL")
	}
	c.run("ls", "--url", "http://127.0.0.1:1").want(t, exitUnavailable, "http://127.0.0.1:1")
	page := filepath.Join(socketDir(t), "page")
	serveText(t, page, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	c.run("ls", "--url", "unix://"+page).want(t, exitUnavailable, "none of a locksidecar")
	c.run("lock", "k", "--url", "unix://"+page).want(t, exitUnavailable, "none of a locksidecar", "(exit 69)")
}

func TestATokenThatIsMissingOrWrongIsToldAndNoTokenIs(t *testing.T) {
	t.Parallel()
	right := tokenFile(t)
	p := launch{Args: []string{"dev"}, Env: []string{"API_TOKEN_FILE=" + right}}.serve(t)
	const secret = "another-token-of-some-length"
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	c := p.cli()
	c.run("ls").want(t, exitUnavailable, "--token-file")
	if r := c.run("ls", "--token-file", wrong).want(t, exitUnavailable, "API token is missing or wrong"); strings.Contains(r.stderr+p.Log(), secret) {
		t.Error("the token is told")
	}
	c.run("ls", "--token-file", wrong+"-not").want(t, exitUnavailable, "no such file")
	c.run("ls", "--token-file", right).want(t, 0)
	c.run("wait", "--max", "300ms", "--token-file", wrong).want(t, exitUnavailable, "API token is missing or wrong")
}

func TestTheOutputOfLockIsSafeToEvaluate(t *testing.T) {
	t.Parallel()
	c := launch{Args: []string{"dev"}}.serve(t).cli()
	c.shell(`eval "$(locksidecar lock k --note '$(touch pwned); touch pwned
')" && echo unreached`).want(t, 64) // a line break in a note
	c.shell(`set -e; fencing_token=old
		eval "$(locksidecar lock k --owner w1 --note "\$(touch pwned)'; touch pwned #")"
		test ! -e pwned; test "$key" = k
		locksidecar status -q k --fencing-token "$fencing_token"; echo "held under $fencing_token"`).want(t, 0, "held under 1")
	c.shell(`fencing_token=old; eval "$(locksidecar lock k 2>/dev/null)" || echo "refused with $? and [$fencing_token]"`).want(t, 0, "refused with 75 and []")
	c.shell(`eval "$(locksidecar lock k --ttl 30 2>/dev/null)" || echo "refused with $?"`).want(t, 0, "refused with 64")
	c.shell(`set -e; eval "$(locksidecar lock k 2>/dev/null)"; echo unreached`).want(t, 75)
}

func TestAGrantThatCannotBePrintedIsGivenBack(t *testing.T) {
	t.Parallel()
	c := launch{Args: []string{"dev"}}.serve(t).cli()
	for _, format := range []string{"env", "json", "text"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		cmd := c.command("lock", "k", "--min-hold", "1m", "-o", format)
		cmd.Stdout = full
		c.finish(cmd).want(t, exitNotAcquired, "given back", "no space left")

		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		defer w.Close()
		cmd = c.command("lock", "k", "--min-hold", "1m", "-o", format)
		cmd.Stdout = w
		c.finish(cmd).want(t, exitNotAcquired, "given back", "broken pipe")
		c.run("status", "k").want(t, exitNotAcquired, "free")
	}
}

func TestASignalEndsAWaitAndTheWaiterLeaves(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	c := p.cli()
	c.run("lock", "k", "--owner", "w1").want(t, 0)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := c.command("lock", "k", "--wait", "1m")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaitWaiting(1)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(out)
		_ = cmd.Wait() // the code tells it
		if code := cmd.ProcessState.ExitCode(); code != 128+int(sig) || !strings.Contains(string(text), fmt.Sprintf("(exit %d)", code)) {
			t.Errorf("%v: exit code %d, output %q", sig, code, text)
		}
		p.awaitWaiting(0)
	}
}

func TestAWaitByCommandGetsTheLockOrSaysThatItIsOver(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	c := p.cli()
	c.run("lock", "k", "--owner", "w1").want(t, 0)
	c.run("lock", "k", "--owner", "w2", "--wait", "100ms").want(t, exitNotAcquired, "the wait is over")
	cmd := c.command("lock", "k", "--owner", "w2", "--wait", "1m", "-o", "json")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitWaiting(1)
	c.run("unlock", "k", "--owner", "w1").want(t, 0)
	if err := cmd.Wait(); err != nil || fields(t, out.String())["owner"] != "w2" {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestWaitBlocksUntilTheSidecarIsThereAndWithStoreUntilItsStoreIs(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	socket := filepath.Join(socketDir(t), "s")
	c := commander{t, []string{"URL=unix://" + socket}}
	early := c.command("wait")
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	p := startSidecar(t, "REDIS_ADDRS="+r.Addr(), "LISTEN=unix://"+socket)
	if err := early.Wait(); err != nil {
		t.Fatalf("a wait that began before the sidecar: %v", err)
	}
	c.run("wait", "--store", "--max", "5s").want(t, exitUnavailable, "the store cannot be used")
	c.run("wait", "--max", "0").want(t, 0)
	late := c.command("wait", "--store")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	r.Restart()
	if err := late.Wait(); err != nil {
		t.Fatalf("a wait that began before the store: %v", err)
	}
	p.Stop()
	began := time.Now()
	c.run("wait", "--max", "300ms").want(t, exitUnavailable, "nothing has come")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a frozen sidecar was waited for %v", took)
	}
	p.Cont()
}

func TestALossEndsStatusUnlockAndExtendWith76(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	c := on(t, r).cli()
	fence := fmt.Sprintf("%.0f", fields(t, c.run("lock", "k", "--ttl", "3s", "-o", "json").want(t, 0).stdout)["fencing_token"])
	recordOf(t).storeLost("k")
	r.Do("DEL", "lock:k")
	eventually(t, 10*time.Second, "the loss is noticed", func() bool { return c.run("status", "-q", "k").code == exitLost })
	c.run("status", "k").want(t, exitLost, "lost: gone", fence)
	c.run("ls").want(t, 0, "lost: gone", fence)
	c.run("extend", "k", "--fencing-token", fence).want(t, exitLost, "lost")
	c.run("unlock", "k", "--fencing-token", fence).want(t, exitLost, "lost")
	c.run("status", "k").want(t, exitNotAcquired, "free")
}

func TestTheStoresTroubleIs69AndAConflictIsNotTakenForHeld(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	c := on(t, r).cli()
	r.Do("RPUSH", "lock:k", "x")
	c.run("lock", "k").want(t, exitUnavailable, "not a lock")
	r.Kill()
	c.run("lock", "k2").want(t, exitUnavailable, "cannot be reached")
}

// serveText answers everybody on the socket with the same text.
func serveText(t testing.TB, socket, text string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, text)
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
}
