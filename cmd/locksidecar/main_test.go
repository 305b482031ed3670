package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fail runs a process that must end by itself, without an answer.
func (l launch) fail(t *testing.T) (code int, output string) {
	t.Helper()
	p := l.start(t)
	return p.WaitExit(30 * time.Second), p.Log()
}

func TestSettingsMistakesAreToldTogetherAndExitWith2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want []string
	}{
		"none at all":        {nil, []string{"LOCKSIDECAR_REDIS_ADDRS is not set", "locksidecar dev"}},
		"a misspelt name":    {[]string{"REDIS_ADDR=redis:6379"}, []string{"LOCKSIDECAR_REDIS_ADDR is no setting; did you mean LOCKSIDECAR_REDIS_ADDRS?"}},
		"a bare number":      {[]string{"REDIS_ADDRS=redis:6379", "DEFAULT_TTL=30"}, []string{"LOCKSIDECAR_DEFAULT_TTL", "30s"}},
		"several":            {[]string{"REDIS_ADDRS=redis:6379", "DEFAULT_TTL=30", "SHUTDOWN_GRACE=5s"}, []string{"2 things are wrong", "DEFAULT_TTL", "SHUTDOWN_GRACE"}},
		"a tied vote":        {[]string{"REDIS_MODE=redlock", "REDIS_ADDRS=a:1,b:1,c:1,d:1"}, []string{"LOCKSIDECAR_REDIS_ADDRS names 4 servers"}},
		"an open door":       {[]string{"REDIS_ADDRS=redis:6379", "LISTEN=0.0.0.0:5625"}, []string{"LOCKSIDECAR_API_TOKEN_FILE"}},
		"doors that collide": {[]string{"REDIS_ADDRS=redis:6379", "LISTEN=127.0.0.1:5625", "ADMIN_LISTEN=:5625"}, []string{"LOCKSIDECAR_ADMIN_LISTEN"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, output := launch{Env: c.env}.fail(t)
			if code != exitSettings {
				t.Errorf("exit code %d, want %d", code, exitSettings)
			}
			for _, want := range c.want {
				if !strings.Contains(output, want) {
					t.Errorf("%q is not in the message:\n%s", want, output)
				}
			}
			if strings.Contains(output, `"msg"`) {
				t.Errorf("the mistakes are not alone:\n%s", output)
			}
		})
	}
}

// A Service called locksidecar has Kubernetes inject these into every pod of
// its namespace.
func TestVariablesOfAServiceCalledLocksidecarAreIgnored(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}, Env: []string{
		"PORT=tcp://10.0.0.1:5625", "SERVICE_HOST=10.0.0.1", "SERVICE_PORT=5625", "SERVICE_PORT_HTTP=5625",
		"PORT_5625_TCP=tcp://10.0.0.1:5625", "PORT_5625_TCP_PROTO=tcp", "PORT_5625_TCP_PORT=5625", "PORT_5625_TCP_ADDR=10.0.0.1",
	}}.serve(t)
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "settings:") {
			t.Errorf("a warning: %s", line)
		}
	}
}

func TestDevNeedsNoRedisAndSaysWhatItIs(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	p.POST("k", "ttl=5s").Want(t, http.StatusCreated, "held")
	p.POST("k").Want(t, http.StatusConflict, "held")
	p.DELETE("k").Want(t, http.StatusNoContent, "")
	if !strings.Contains(p.Log(), "development mode") {
		t.Errorf("the log does not say that this excludes nobody:\n%s", p.Log())
	}
	if status, text := p.Ready(); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
}

func TestACommandLineThatCannotBeUsedExitsWith64(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve"}, {"-v"}, {"--"}, {"dev", "now"}, {"version", "-v"}, {"", ""}} {
		code, output := launch{Args: args}.fail(t)
		if code != exitUsage || output == "" {
			t.Errorf("%q: exit code %d, want %d; it says %q", args, code, exitUsage, output)
		}
	}
}

func TestHelpAndVersionGoToStandardOutput(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"help": "serve from memory", "--help": "serve from memory", "-h": "serve from memory",
		"version": "locksidecar ", "--version": "locksidecar ",
	} {
		p := launch{Args: []string{arg}, Env: []string{"REDIS_ADDR=misspelt"}}.start(t)
		if code := p.WaitExit(30 * time.Second); code != 0 || p.Log() != "" || !strings.Contains(p.Stdout(), want) {
			t.Errorf("%s: exit code %d, output %q, errors %q", arg, code, p.Stdout(), p.Log())
		}
	}
}

func TestATakenPortIsAClearErrorAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for name, doors := range map[string][]string{
		"of the API":        {"LISTEN=unix://%s," + address, "ADMIN_LISTEN=off"},
		"of the admin door": {"LISTEN=unix://%s", "ADMIN_LISTEN=" + address},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(socketDir(t), "s")
			doors[0] = fmt.Sprintf(doors[0], socket)
			code, output := launch{Args: []string{"dev"}, Env: doors}.fail(t)
			if code != exitFailure || !strings.Contains(output, "address already in use") || !strings.Contains(output, address) {
				t.Errorf("exit code %d, want %d; it says:\n%s", code, exitFailure, output)
			}
			if _, err := os.Lstat(socket); !os.IsNotExist(err) {
				t.Errorf("the socket: %v", err)
			}
		})
	}
}

// socketDir returns a directory with a path short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// tokenFile returns a file with an API token.
func tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheAPIListensWhereItIsToldToAndNowhereElse(t *testing.T) {
	t.Parallel()
	token := tokenFile(t)
	socket := filepath.Join(socketDir(t), "a socket")
	for listen, c := range map[string]struct {
		doors []string // as the log tells them, without ports
		token bool     // others can reach them
	}{
		"[::1]:0":              {[]string{"[::1]"}, false},
		"127.0.0.2:0":          {[]string{"127.0.0.2"}, false},
		"[::ffff:127.0.0.1]:0": {[]string{"127.0.0.1"}, false},
		"localhost:0":          {[]string{"127.0.0.1", "[::1]"}, false},
		"127.0.0.1:0, [::1]:0": {[]string{"127.0.0.1", "[::1]"}, false},
		"unix://" + socket:     {[]string{socket}, false},
		"0.0.0.0:0":            {[]string{"0.0.0.0"}, true},
		"[::]:0":               {[]string{"[::]"}, true},
		":0":                   {[]string{"[::]"}, true},
	} {
		t.Run(listen, func(t *testing.T) {
			env := []string{"LISTEN=" + listen, "ALLOWED_HOSTS=127.0.0.2"}
			if c.token {
				env = append(env, "API_TOKEN_FILE="+token)
			}
			p := launch{Args: []string{"dev"}, Env: env}.start(t)
			p.findDoors()
			var doors []string
			for _, door := range p.lines("listening")[0]["api"].([]any) {
				host, _, err := net.SplitHostPort(door.(string))
				if err != nil {
					host = door.(string)
				} else if strings.Contains(host, ":") {
					host = "[" + host + "]"
				}
				doors = append(doors, host)
			}
			if !slices.Equal(doors, c.doors) {
				t.Errorf("it listens on %q, want %q", doors, c.doors)
			}
			if !c.token {
				p.POST("k").Want(t, http.StatusCreated, "held")
				return
			}
			_, port, err := net.SplitHostPort(strings.TrimPrefix(p.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			p.URL = "http://127.0.0.1:" + port
			p.POST("k").Want(t, http.StatusUnauthorized, "unauthorized")
		})
	}
}

func TestAnAddressThatNobodyCanListenOnIsAMistakeInTheSettings(t *testing.T) {
	t.Parallel()
	token := tokenFile(t)
	code, output := launch{Args: []string{"dev"}, Env: []string{"LISTEN=some-host:5625", "API_TOKEN_FILE=" + token}}.fail(t)
	if code != exitSettings || !strings.Contains(output, "LOCKSIDECAR_LISTEN") {
		t.Errorf("exit code %d, want %d; it says:\n%s", code, exitSettings, output)
	}
}
