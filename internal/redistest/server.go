// Package redistest starts real redis-server processes for tests, each with a
// directory, a port and a socket of its own, so that any number of test
// processes can run side by side.
package redistest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
)

// startDeadline bounds how long a server may take until it answers; it is
// generous because CI machines run many of them at once.
const startDeadline = 20 * time.Second

// Config says how a server is to be. The zero Config is one that persists
// nothing and listens in clear on a port of 127.0.0.1 and on a socket.
type Config struct {
	// Directives are lines of redis.conf. They come last, so they override
	// what this package sets.
	Directives []string

	// Password is set for the default user. [Server.Do] and its relatives
	// present it.
	Password string

	// TLS makes the port speak TLS alone, with a certificate for 127.0.0.1
	// and localhost that [Server.CA] issued. The socket stays in clear.
	TLS bool

	// CA issues that certificate; nil makes a new authority.
	CA *CA

	// Wrap precedes the program on the command line. It must replace itself by
	// the program: {"sh", "-c", `ulimit -n 64; exec "$0" "$@"`}.
	Wrap []string

	sentinel bool
	among    figures.Column // the kind of others that it belongs to; "" for none
}

// Server is one redis-server process, or a succession of them with the same
// directory, port and socket. Its methods belong to the test's goroutine.
type Server struct {
	t    testing.TB
	cfg  Config
	dir  string
	port int
	ca   *CA

	frozen bool
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has been reaped
}

// Start starts a server with these lines of redis.conf. It is killed when the
// test ends.
func Start(t testing.TB, directives ...string) *Server {
	t.Helper()
	return Config{Directives: directives}.Start(t)
}

// Start starts a server that answers by the time Start returns. It is killed
// when the test ends.
func (c Config) Start(t testing.TB) *Server {
	t.Helper()
	servers := startTogether(t, func() []*Server { return []*Server{c.prepare(t)} })
	return servers[0]
}

// StartMany starts servers that know nothing of each other, side by side.
func (c Config) StartMany(t testing.TB, n int) []*Server {
	t.Helper()
	c.among = figures.Redlock
	return startTogether(t, func() []*Server {
		var servers []*Server
		for range n {
			servers = append(servers, c.prepare(t))
		}
		return servers
	})
}

// startTogether starts the servers that prepare returns, side by side, and has
// them prepared anew if a port has been taken meanwhile.
func startTogether(t testing.TB, prepare func() []*Server) []*Server {
	t.Helper()
	if _, err := exec.LookPath(program()); err != nil {
		t.Fatalf("%s is not installed: run `make test`, or `apt-get install redis-server`", program())
	}
	var failure error
	for range 20 {
		servers := prepare()
		errs := make([]error, len(servers))
		var starting sync.WaitGroup
		for i, s := range servers {
			starting.Go(func() { errs[i] = s.launch() })
		}
		starting.Wait()
		if failure = errors.Join(errs...); failure == nil {
			return servers
		}
		for _, s := range servers {
			s.end()
		}
		if !errors.Is(failure, errPortTaken) {
			break
		}
	}
	t.Fatal(failure)
	return nil
}

// program is the server that the tests run on: LOCKSIDECAR_TEST_SERVER, or
// redis-server, or valkey-server where that alone is installed.
func program() string {
	if name := os.Getenv("LOCKSIDECAR_TEST_SERVER"); name != "" {
		return name
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return "redis-server"
}

// prepare makes a directory for a server, which is removed when the test ends,
// and chooses a port.
func (c Config) prepare(t testing.TB) *Server {
	t.Helper()
	// Not t.TempDir: the test's name is in that path, and the path of a Unix
	// socket has room for some hundred bytes only.
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, cfg: c, dir: dir, port: freePort(t)}
	t.Cleanup(func() {
		s.end()
		removeAll(t, dir)
	})
	if c.TLS {
		s.ca = c.CA
		if s.ca == nil {
			s.ca = NewCA(t)
		}
		s.InstallCertificate(s.ca.Issue(t, Certificate{}))
	}
	return s
}

// removeAll removes a server's directory. A child that the server has forked to
// write a file, such as its AOF, outlives it for a moment and may make or rename
// that file meanwhile.
func removeAll(t testing.TB, dir string) {
	for deadline := time.Now().Add(startDeadline); ; time.Sleep(time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(deadline) {
			t.Error(err)
			return
		}
	}
}

// Addr returns the address of the port, as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Socket returns the path of the Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Dir returns the server's working directory.
func (s *Server) Dir() string { return s.dir }

// CA returns the authority that issued the server's certificate, or nil for a
// server without TLS.
func (s *Server) CA() *CA { return s.ca }

// InstallCertificate puts a certificate and its key where the server reads
// them at its next start, or at `CONFIG SET tls-cert-file` to the same path.
func (s *Server) InstallCertificate(certPEM, keyPEM []byte) {
	s.t.Helper()
	for name, pem := range map[string][]byte{"cert.pem": certPEM, "key.pem": keyPEM, "ca.pem": s.ca.CertPEM} {
		if err := os.WriteFile(filepath.Join(s.dir, name), pem, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Rotate has the server show another certificate, which an authority issues, from
// the next connection on. It trusts clients of that authority and of its own. A
// Sentinel is started again for that.
func (s *Server) Rotate(ca *CA, c Certificate) {
	s.t.Helper()
	s.InstallCertificate(ca.Issue(s.t, c))
	both := append(append([]byte(nil), s.ca.CertPEM...), ca.CertPEM...)
	if err := os.WriteFile(filepath.Join(s.dir, "ca.pem"), both, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if s.cfg.sentinel {
		s.Restart()
		return
	}
	s.Do("CONFIG", "SET", "tls-cert-file", "cert.pem", "tls-key-file", "key.pem", "tls-ca-cert-file", "ca.pem")
}

// Kill ends the process by SIGKILL and returns once it is gone. It does
// nothing if the process has ended already.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.count(figures.ServerKilled)
		s.end()
	}
}

func (s *Server) end() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails only if it has ended by itself
	<-s.exited
	s.cmd, s.frozen = nil, false
}

// Restart kills the process if it runs, starts another in the same directory,
// on the same port and socket, and returns once it answers. Without
// persistence the new one is empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.RestartLoading()
	if err := s.awaitAnswer(); err != nil {
		s.t.Fatal(err)
	}
}

// RestartLoading is Restart for tests that want to meet the server while it
// is loading its data: it does not wait for answers.
func (s *Server) RestartLoading() {
	s.t.Helper()
	s.Kill()
	if !s.cfg.sentinel && !s.hasData() {
		s.count(figures.Wiped)
	}
	if err := s.spawn(); err != nil {
		s.t.Fatal(err)
	}
}

// hasData tells whether there is something in the directory that it will load.
func (s *Server) hasData() bool {
	dumps, _ := filepath.Glob(filepath.Join(s.dir, "*.rdb"))
	logs, _ := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*"))
	return len(dumps)+len(logs) > 0
}

// Stop freezes the process (SIGSTOP): its connections stay and say nothing.
func (s *Server) Stop() {
	s.count(figures.ServerFrozen)
	s.signal(syscall.SIGSTOP)
	s.frozen = true
}

// Cont lets a frozen process go on.
func (s *Server) Cont() {
	s.signal(syscall.SIGCONT)
	s.frozen = false
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("%v: the server does not run", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%v: %v", sig, err)
	}
}

// count counts what befalls the server.
func (s *Server) count(what figures.Row) {
	figures.Count(what, cmp.Or(s.cfg.among, figures.Single), 1)
}

var errPortTaken = errors.New("the port is taken")

func (s *Server) launch() error {
	if err := s.spawn(); err != nil {
		return err
	}
	return s.awaitAnswer()
}

func (s *Server) spawn() error {
	conf := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(s.conf()), 0o600); err != nil {
		return err
	}
	log, err := os.Create(s.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	args := append(append([]string(nil), s.cfg.Wrap...), program(), conf)
	if s.cfg.sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how a server that is to be killed ends is of no interest
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	return nil
}

// awaitAnswer returns once the server answers commands.
func (s *Server) awaitAnswer() error {
	var last error
	for deadline := time.Now().Add(startDeadline); time.Now().Before(deadline); {
		_, last = s.Try("PING")
		var refused Error
		if last == nil || errors.As(last, &refused) && !strings.HasPrefix(string(refused), "LOADING") {
			return nil
		}
		select {
		case <-s.exited:
			log := s.readLog()
			s.cmd = nil
			if strings.Contains(log, "Address already in use") {
				return fmt.Errorf("%w: %s", errPortTaken, s.Addr())
			}
			return fmt.Errorf("the server has ended; its log:\n%s", log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("the server does not answer (%v); its log:\n%s", last, s.readLog())
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

func (s *Server) readLog() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// conf returns the redis.conf.
func (s *Server) conf() string {
	lines := []string{
		"bind 127.0.0.1",
		"unixsocket " + s.Socket(),
		"dir " + s.dir,
		"daemonize no",
		`save ""`,
		"appendonly no",
		"repl-diskless-sync-delay 0",
	}
	if s.cfg.TLS {
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", s.port),
			"tls-cert-file cert.pem", "tls-key-file key.pem", "tls-ca-cert-file ca.pem",
			"tls-auth-clients no", "tls-replication yes")
	} else {
		lines = append(lines, fmt.Sprintf("port %d", s.port))
	}
	if s.cfg.Password != "" {
		lines = append(lines, "requirepass "+s.cfg.Password, "masterauth "+s.cfg.Password)
	}
	return strings.Join(append(lines, s.cfg.Directives...), "\n") + "\n"
}
