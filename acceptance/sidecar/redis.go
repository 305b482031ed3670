package sidecar

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Redis is one redis-server process that keeps nothing on disk.
type Redis struct {
	t      testing.TB
	addr   string // that sidecars use
	socket string // that we use
	kill   func()
}

// StartRedis starts a server and returns once it answers. It is killed when
// the test ends.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server is not installed: run `make test-acceptance`, or `apt-get install redis-server`")
	}
	// Not t.TempDir: the path of a Unix socket has room for some hundred bytes.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	r := &Redis{t: t, socket: filepath.Join(dir, "s"), addr: FreeDoor(t)}
	_, port, _ := net.SplitHostPort(r.addr)
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--unixsocket", r.socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		r.kill()
		_ = os.RemoveAll(dir)
	})
	Eventually(t, "redis-server answers", func() bool {
		answer, err := r.ask("PING")
		return err == nil && answer == "+PONG"
	})
	return r
}

// Settings make a sidecar use the server.
func (r *Redis) Settings() []string {
	return []string{"REDIS_MODE=single", "REDIS_ADDRS=" + r.addr}
}

// Kill ends the server and returns once it is gone.
func (r *Redis) Kill() { r.kill() }

// Do sends one command, words without spaces, and returns the first line of
// the answer.
func (r *Redis) Do(command ...string) string {
	r.t.Helper()
	answer, err := r.ask(command...)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func (r *Redis) ask(command ...string) (string, error) {
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(command, " ") + "\r\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}
