package httpapi

import (
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// open opens doors that are closed when the test ends.
func open(t *testing.T, list string, withToken bool) ([]net.Listener, string, error) {
	t.Helper()
	var log strings.Builder
	doors, err := OpenDoors(list, withToken, slog.New(slog.NewTextHandler(&log, nil)))
	for _, l := range doors {
		t.Cleanup(func() { _ = l.Close() })
	}
	return doors, log.String(), err
}

func hostsOf(t *testing.T, doors []net.Listener) []string {
	t.Helper()
	var hosts []string
	for _, l := range doors {
		host, _, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, host)
	}
	return hosts
}

func TestDoorsOpenWhereTheyWereToldTo(t *testing.T) {
	for list, want := range map[string][]string{
		"127.0.0.1:0":              {"127.0.0.1"},
		"127.0.0.1:0, 127.0.0.1:0": {"127.0.0.1", "127.0.0.1"},
		"[::ffff:127.0.0.1]:0":     {"127.0.0.1"},
		"127.0.0.2:0":              {"127.0.0.2"},
		"[::1]:0":                  {"::1"},
		"localhost:0":              {"127.0.0.1", "::1"},
		"127.0.0.1:0,[::1]:0":      {"127.0.0.1", "::1"},
	} {
		doors, _, err := open(t, list, false)
		if err != nil && strings.Contains(list, "::1]") && !hasIPv6() {
			continue
		}
		if !hasIPv6() {
			want = slices.DeleteFunc(slices.Clone(want), func(host string) bool { return host == "::1" })
		}
		if err != nil || !slices.Equal(hostsOf(t, doors), want) {
			t.Errorf("%s: %v %v, want %v", list, hostsOf(t, doors), err, want)
		}
	}
}

func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func TestATakenIPv6LoopbackIsAWarningAndATakenIPv4AnError(t *testing.T) {
	taken4, _, err := open(t, "127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	if doors, _, err := open(t, "127.0.0.1:0,"+taken4[0].Addr().String(), false); err == nil || doors != nil {
		t.Errorf("a taken 127.0.0.1: %v %v", doors, err)
	}
	if !hasIPv6() {
		t.Skip("this machine has no IPv6 loopback address")
	}
	taken6, _, err := open(t, "[::1]:0", false)
	if err != nil {
		t.Fatal(err)
	}
	doors, log, err := open(t, "127.0.0.1:0,"+taken6[0].Addr().String(), false)
	if err != nil || len(doors) != 1 || !strings.Contains(log, "level=WARN") {
		t.Errorf("a taken ::1: %v %v, log %q", doors, err, log)
	}
	if doors, _, err := open(t, taken6[0].Addr().String(), false); err == nil {
		t.Errorf("no door at all: %v", doors)
	}
}

func TestAddressesThatOthersReachNeedAToken(t *testing.T) {
	for _, list := range []string{":0", "0.0.0.0:0", "[::]:0", "127.0.0.1:0,0.0.0.0:0", "10.0.0.1:0"} {
		if doors, _, err := open(t, list, false); err == nil {
			t.Errorf("%s opened %v", list, hostsOf(t, doors))
		}
	}
	for _, list := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		if _, _, err := open(t, list, true); err != nil {
			t.Errorf("with a token: %v", err)
		}
	}
}

func TestASocketsPathIsTakenAsItStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a socket")
	doors, _, err := open(t, " unix://"+path, false)
	if err != nil || doors[0].Addr().String() != path {
		t.Errorf("%v, %v", doors, err)
	}
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	for _, list := range []string{"", "5625", "127.0.0.1", "example.com:5625", "127.0.0.1:0,", "127.0.0.1:http", ":http", "127.0.0.1:70000", "unix://relative", "unix://", "unix:/x", "tcp://127.0.0.1:0"} {
		if doors, _, err := open(t, list, true); err == nil {
			t.Errorf("%q opened %v", list, doors[0].Addr())
		}
	}
}

func TestAUnixSocketIsForItsOwnerAndGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	doors, _, err := open(t, "unix://"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, _, err := open(t, "unix://"+path, false); err == nil {
		t.Error("a socket that is served was taken over")
	}
	if err := doors[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is still there after the close")
	}
}

func TestADeadProcessesSocketIsReplacedAndAnythingElseKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	doors, _, err := open(t, "unix://"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := doors[0].Accept(); err == nil {
			_, _ = io.WriteString(c, "here")
			_ = c.Close()
		}
	}()
	c := dial(t, "unix", path)
	if said, err := io.ReadAll(c); err != nil || string(said) != "here" {
		t.Errorf("%q %v", said, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(t, "unix://"+file, false); err == nil {
		t.Error("a file was taken for a socket")
	}
	if kept, _ := os.ReadFile(file); string(kept) != "precious" {
		t.Error("the file is gone")
	}
}
