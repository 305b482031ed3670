package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// redisAt is an environment that is complete.
var redisAt = map[string]string{"REDIS_ADDRS": "redis:6379"}

// load reads the settings with exactly these LOCKSIDECAR_ variables.
func load(t *testing.T, env map[string]string, dev bool) (Settings, []string, []Mistake) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, envPrefix+"_") || strings.HasPrefix(name, "POD_") {
			t.Setenv(name, "") // so that it is restored after the test
			os.Unsetenv(name)
		}
	}
	for name, value := range env {
		if !strings.HasPrefix(name, "POD_") {
			name = envPrefix + "_" + name
		}
		t.Setenv(name, value)
	}
	settings, warnings, err := LoadSettings("host-1", dev)
	if err == nil {
		return settings, warnings, nil
	}
	var wrong *SettingsError
	if !errors.As(err, &wrong) || len(wrong.Mistakes) == 0 {
		t.Fatalf("error is %v (%T), want a *SettingsError with mistakes", err, err)
	}
	return settings, warnings, wrong.Mistakes
}

func mustLoad(t *testing.T, env map[string]string) Settings {
	t.Helper()
	settings, _, mistakes := load(t, env, false)
	if len(mistakes) > 0 {
		t.Fatalf("mistakes: %v", mistakes)
	}
	return settings
}

// with returns redisAt and what else is given, as name, value, name, value.
func with(pairs ...string) map[string]string {
	env := map[string]string{}
	for name, value := range redisAt {
		env[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return env
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyTheAddressOfRedisMustBeSet(t *testing.T) {
	s := mustLoad(t, redisAt)
	type values struct {
		Mode                                          RedisMode
		Addr, Prefix, Holder, Listen, Listen2, Admin  string
		Timeout, TTL, MaxTTL, MaxHold, MaxWait, Grace time.Duration
		MaxHeld, MaxWaiters, Database                 int
		TLS                                           bool
		Shutdown                                      locker.ReleaseMode
		Level                                         slog.Level
		Format                                        LogFormat
	}
	got := values{
		s.RedisMode, s.RedisAddrs[0].String(), s.KeyPrefix, s.Holder, s.Listen[0].String(), s.Listen[1].String(), s.AdminListen.String(),
		s.StoreTimeout, s.DefaultTTL, s.MaxTTL, s.DefaultMaxHold, s.MaxWait, s.ShutdownGrace,
		s.MaxHeld, s.MaxWaiters, s.RedisDB, s.RedisTLS, s.ShutdownMode, s.LogLevel, s.LogFormat,
	}
	want := values{
		ModeSingle, "redis:6379", "lock:", "host-1", "127.0.0.1:5625", "[::1]:5625", ":5626",
		300 * time.Millisecond, 30 * time.Second, 24 * time.Hour, 0, time.Hour, 1500 * time.Millisecond,
		10000, 2000, 0, false, locker.ModeDrop, slog.LevelInfo, LogJSON,
	}
	if got != want {
		t.Errorf("settings\n got %+v\nwant %+v", got, want)
	}
	if len(s.Listen) != 2 || s.RedisTLSConfig() != nil {
		t.Errorf("listens on %v, TLS is on: %v", s.Listen, s.RedisTLSConfig() != nil)
	}
}

func TestWithoutAnAddressTheMessageNamesTheWayToTryItWithoutRedis(t *testing.T) {
	_, _, mistakes := load(t, nil, false)
	if len(mistakes) != 1 || mistakes[0].Name != "LOCKSIDECAR_REDIS_ADDRS" || !strings.Contains(mistakes[0].Problem, "locksidecar dev") {
		t.Errorf("mistakes: %v", mistakes)
	}
}

func TestEveryMistakeIsToldInOneMessage(t *testing.T) {
	_, _, mistakes := load(t, map[string]string{
		"DEFAULT_TTL":   "30",
		"MAX_HELD":      "many",
		"LISTEN":        "localhost,0.0.0.0:1,:x",
		"KEY_PREFIX":    "{a}",
		"SHUTDOWN_MODE": "dorp",
		"LOG_LEVEL":     "loud",
		"REDIS_TLS":     "maybe",
		"STORE_TIMEOUT": "1s",
		"METRIC_KEYS":   "a,/b,c d",
	}, false)
	err := &SettingsError{mistakes}
	lines := strings.Split(err.Error(), "\n")
	if lines[0] != "12 things are wrong with the settings:" || len(lines) != 13 {
		t.Errorf("the message has %d lines:\n%s", len(lines), err)
	}
	for _, name := range []string{"DEFAULT_TTL", "MAX_HELD", "LISTEN", "KEY_PREFIX", "SHUTDOWN_MODE", "LOG_LEVEL", "REDIS_TLS", "STORE_TIMEOUT", "METRIC_KEYS", "REDIS_ADDRS"} {
		if !strings.Contains(err.Error(), "\n  LOCKSIDECAR_"+name+" ") {
			t.Errorf("%s is missing in\n%s", name, err)
		}
	}
}

func TestEachMistakeSaysWhatIsWrong(t *testing.T) {
	short := writeFile(t, "s3cret\n")
	empty := writeFile(t, "\n")
	spaced := writeFile(t, "two words of a token\n")
	for _, tt := range []struct {
		env  map[string]string
		name string // that is blamed
		says string
	}{
		{with("DEFAULT_TTL", "30"), "DEFAULT_TTL", `"30" is not a duration; write a number with its unit, such as 1500ms, 30s or 2h`},
		{with("DEFAULT_TTL", "999ms"), "DEFAULT_TTL", "from 1s to"},
		{with("DEFAULT_TTL", "25h"), "DEFAULT_TTL", "above LOCKSIDECAR_MAX_TTL, which is 24h0m0s"},
		{with("DEFAULT_TTL", ""), "DEFAULT_TTL", "set to nothing"},
		{with("MAX_TTL", "10s"), "DEFAULT_TTL", "above LOCKSIDECAR_MAX_TTL"},
		{with("MAX_TTL", "8761h"), "MAX_TTL", "out of range"},
		{with("MAX_TTL", "10"), "MAX_TTL", "not a duration"},
		{with("MAX_TTL", "0s"), "MAX_TTL", "out of range"},
		{with("DEFAULT_MAX_HOLD", "29s"), "DEFAULT_MAX_HOLD", "below LOCKSIDECAR_DEFAULT_TTL"},
		{with("DEFAULT_MAX_HOLD", "-1s"), "DEFAULT_MAX_HOLD", "out of range"},
		{with("MAX_WAIT", "-1s"), "MAX_WAIT", "out of range"},
		{with("MAX_HELD", "0"), "MAX_HELD", "from 1 to 1000000"},
		{with("MAX_HELD", "1.5"), "MAX_HELD", "not a whole number"},
		{with("MAX_WAITERS", "100001"), "MAX_WAITERS", "out of range"},
		{with("STORE_TIMEOUT", "334ms"), "STORE_TIMEOUT", "at most 333ms"},
		{with("STORE_TIMEOUT", "9ms"), "STORE_TIMEOUT", "from 10ms"},
		{with("SHUTDOWN_GRACE", "1501ms"), "SHUTDOWN_GRACE", "too long for LOCKSIDECAR_SHUTDOWN_MODE=drop; at most 1.5s"},
		{with("SHUTDOWN_GRACE", "1501ms", "SHUTDOWN_MODE", "guarded"), "SHUTDOWN_GRACE", "too long for LOCKSIDECAR_SHUTDOWN_MODE=guarded"},
		{with("SHUTDOWN_GRACE", "-1ms"), "SHUTDOWN_GRACE", "out of range"},
		{with("SHUTDOWN_MODE", "Drop"), "SHUTDOWN_MODE", `"Drop" is not one of drop, guarded, release`},
		{with("LOG_FORMAT", "xml"), "LOG_FORMAT", "not one of json, text"},
		{with("LOG_LEVEL", "trace"), "LOG_LEVEL", "not one of debug, info, warn, error"},

		{with("KEY_PREFIX", "a{b"), "KEY_PREFIX", `the character '{'`},
		{with("KEY_PREFIX", "a}"), "KEY_PREFIX", `the character '}'`},
		{with("KEY_PREFIX", "lock*"), "KEY_PREFIX", `the character '*'`},
		{with("KEY_PREFIX", "lock?"), "KEY_PREFIX", `the character '?'`},
		{with("KEY_PREFIX", "lock["), "KEY_PREFIX", `the character '['`},
		{with("KEY_PREFIX", "lock]"), "KEY_PREFIX", `the character ']'`},
		{with("KEY_PREFIX", `lock\`), "KEY_PREFIX", `the character '\\'`},
		{with("KEY_PREFIX", "lock^"), "KEY_PREFIX", `the character '^'`},
		{with("KEY_PREFIX", "my lock:"), "KEY_PREFIX", "white space"},
		{with("KEY_PREFIX", "lock\x1b:"), "KEY_PREFIX", "control character"},
		{with("KEY_PREFIX", "lock\xff:"), "KEY_PREFIX", "invalid UTF-8"},
		{with("KEY_PREFIX", "#lock:"), "KEY_PREFIX", "begins with #"},
		{with("KEY_PREFIX", strings.Repeat("p", 129)), "KEY_PREFIX", "at most 128"},
		{with("HOLDER", "a\nb"), "HOLDER", "control character"},
		{with("HOLDER", "a b"), "HOLDER", "white space"},
		{with("HOLDER", strings.Repeat("h", 318)), "HOLDER", "at most 317"},
		{with("METRIC_KEYS", "a,b,a"), "METRIC_KEYS", `"a" twice`},
		{with("METRIC_KEYS", "a,,b"), "METRIC_KEYS", "element 2: the key is empty"},
		{with("METRIC_KEYS", "a"+strings.Repeat(",k", 50)), "METRIC_KEYS", "at most 50"},

		{with("LISTEN", "5625"), "LISTEN", "neither host:port"},
		{with("LISTEN", "127.0.0.1:65536"), "LISTEN", "no valid port"},
		{with("LISTEN", "unix://run/lock.sock"), "LISTEN", "must begin with /"},
		{with("LISTEN", "unix:///"+strings.Repeat("p", 107)), "LISTEN", "at most 107"},
		{with("LISTEN", ":5625"), "LISTEN", "set LOCKSIDECAR_API_TOKEN_FILE"},
		{with("LISTEN", "127.0.0.1:5625,10.0.0.1:5625"), "LISTEN", "10.0.0.1:5625 can be reached from outside"},
		{with("LISTEN", "lock.example:5625"), "LISTEN", "names a host"},
		{with("LISTEN", "127.0.0.1:5625,127.0.0.1:5625"), "LISTEN", "taken by an earlier element"},
		{with("LISTEN", "127.0.0.1:5625,[::ffff:127.0.0.1]:5625"), "LISTEN", "taken by an earlier element"},
		{with("LISTEN", "[::1]:5625,[0:0::1]:05625"), "LISTEN", "taken by an earlier element"},
		{with("LISTEN", "localhost:5625,127.0.0.1:5625"), "LISTEN", "taken by an earlier element"},
		{with("LISTEN", "unix:///a,unix:///a"), "LISTEN", "taken by an earlier element"},
		{with("ADMIN_LISTEN", ":5625"), "ADMIN_LISTEN", "taken by LOCKSIDECAR_LISTEN"},
		{with("ADMIN_LISTEN", "127.0.0.1:5625"), "ADMIN_LISTEN", "taken by LOCKSIDECAR_LISTEN"},
		{with("ADMIN_LISTEN", "unix:///admin.sock"), "ADMIN_LISTEN", "neither host:port nor off"},
		{with("ALLOWED_HOSTS", "a.example:80"), "ALLOWED_HOSTS", "no port"},
		{with("ALLOWED_HOSTS", "*.example"), "ALLOWED_HOSTS", "no wildcard"},
		{with("API_TOKEN_FILE", "/does/not/exist"), "API_TOKEN_FILE", "no such file"},
		{with("API_TOKEN_FILE", empty), "API_TOKEN_FILE", "is empty"},
		{with("API_TOKEN_FILE", spaced), "API_TOKEN_FILE", "Authorization header"},

		{with("REDIS_MODE", "Single"), "REDIS_MODE", `"Single" is not one of single, sentinel, cluster, redlock, memory`},
		{with("REDIS_MODE", "redlock"), "REDIS_ADDRS", "names 1 servers; LOCKSIDECAR_REDIS_MODE=redlock takes an odd number from 3 to 15"},
		{redlock("REDIS_ADDRS", "a:1,b:2,c:3,d:4"), "REDIS_ADDRS", "4 bear the loss of no more of them than 3"},
		{redlock("REDIS_ADDRS", "a:1,b:2,a:1"), "REDIS_ADDRS", "names a:1 twice"},
		{redlock("REDIS_ADDRS", "a:1,b:2,redis://:p@c"), "REDIS_ADDRS", "has a URL with credentials"},
		{redlock("REDIS_ADDRS", "a:1,b:2,redis://c/1"), "REDIS_ADDRS", "has a URL with a database"},
		{redlock("REDIS_ADDRS", "a:1,b:2,unix:///c"), "REDIS_ADDRS", "a socket"},
		{redlock("REDIS_NODE_TIMEOUT", "151ms"), "REDIS_NODE_TIMEOUT", "at most 150ms"},
		{redlock("REDIS_NODE_TIMEOUT", "4ms"), "REDIS_NODE_TIMEOUT", "from 5ms"},
		{redlock("REDIS_MIN_REPLICAS", "1"), "REDIS_MIN_REPLICAS", "more of them do what replicas would"},
		{redlock("SENTINEL_MASTER", "m"), "SENTINEL_MASTER", "asks no Sentinel"},
		{with("REDIS_NODE_TIMEOUT", "50ms"), "REDIS_NODE_TIMEOUT", "has one store"},
		{with("REDIS_MODE", "sentinel"), "SENTINEL_MASTER", "as in mymaster"},
		{sentinel("SENTINEL_MASTER", "my master"), "SENTINEL_MASTER", "white space"},
		{sentinel("SENTINEL_USERNAME", "u"), "SENTINEL_PASSWORD", "no user without a password"},
		{sentinel("SENTINEL_PASSWORD", "p", "SENTINEL_PASSWORD_FILE", short), "SENTINEL_PASSWORD", "given 2 times"},
		{sentinel("SENTINEL_PASSWORD_FILE", empty), "SENTINEL_PASSWORD_FILE", "is empty"},
		{sentinel("REDIS_ADDRS", "a:1,redis://:p@b"), "REDIS_ADDRS", "has a URL with credentials"},
		{sentinel("REDIS_ADDRS", "a:1,redis://b/1"), "REDIS_ADDRS", "has a URL with a database"},
		{sentinel("REDIS_ADDRS", "a:1,unix:///b"), "REDIS_ADDRS", "a socket"},
		{sentinel("REDIS_ADDRS", "a:1,b:1,a:1"), "REDIS_ADDRS", "names a:1 twice"},
		{sentinel("REDIS_ADDRS", "redis://a,redis://a:26379"), "REDIS_ADDRS", "names a:26379 twice"},
		{sentinel("REDIS_ADDRS", "redis://a,rediss://b"), "REDIS_ADDRS", "TLS is for all of them"},
		{sentinel("REDIS_ADDRS", "redis://a,b:1", "REDIS_TLS", "true"), "REDIS_TLS", "is plain text"},
		{with("REDIS_MODE", "cluster", "REDIS_DB", "1"), "REDIS_DB", "has no databases"},
		{with("REDIS_MODE", "cluster", "REDIS_ADDRS", "redis://a/0"), "REDIS_ADDRS", "has a URL with a database"},
		{with("REDIS_MODE", "cluster", "SENTINEL_MASTER", "m"), "SENTINEL_MASTER", "asks no Sentinel"},
		{with("SENTINEL_PASSWORD", "p"), "SENTINEL_PASSWORD", "asks no Sentinel"},
		{with("REDIS_MODE", "memory"), "REDIS_ADDRS", "LOCKSIDECAR_REDIS_MODE=memory uses no Redis"},
		{with("REDIS_ADDRS", "a:1,b:2"), "REDIS_ADDRS", "names 2 servers"},
		{with("REDIS_DB", "-1"), "REDIS_DB", "out of range"},
		{with("REDIS_DB", "1", "REDIS_ADDRS", "redis://a/2"), "REDIS_DB", "names a database too"},
		{with("REDIS_TLS", "yes"), "REDIS_TLS", "neither true nor false"},
		{with("REDIS_TLS", "false", "REDIS_ADDRS", "rediss://a"), "REDIS_TLS", "is TLS"},
		{with("REDIS_TLS", "true", "REDIS_ADDRS", "redis://a"), "REDIS_TLS", "is plain text"},
		{with("REDIS_TLS", "true", "REDIS_ADDRS", "unix:///a"), "REDIS_TLS", "a socket"},
		{with("REDIS_TLS_SERVER_NAME", "a"), "REDIS_TLS_SERVER_NAME", "TLS is not on"},
		{with("REDIS_TLS", "true", "REDIS_TLS_CA_FILE", "/does/not/exist"), "REDIS_TLS_CA_FILE", "no such file"},
		{with("REDIS_TLS", "true", "REDIS_TLS_CA_FILE", short), "REDIS_TLS_CA_FILE", "no PEM certificate"},
		{with("REDIS_TLS", "true", "REDIS_TLS_CERT_FILE", short), "REDIS_TLS_CERT_FILE", "needs its key"},
		{with("REDIS_TLS", "true", "REDIS_TLS_KEY_FILE", short), "REDIS_TLS_KEY_FILE", "needs its certificate"},
		{with("REDIS_TLS", "true", "REDIS_TLS_CERT_FILE", short, "REDIS_TLS_KEY_FILE", short), "REDIS_TLS_CERT_FILE", "cannot be used"},
		{with("REDIS_USERNAME", "u"), "REDIS_PASSWORD", "no user without a password"},
		{with("REDIS_ADDRS", "redis://u@a"), "REDIS_PASSWORD", "no user without a password"},
		{with("REDIS_PASSWORD", "p", "REDIS_PASSWORD_FILE", short), "REDIS_PASSWORD", "given 2 times, by LOCKSIDECAR_REDIS_PASSWORD and LOCKSIDECAR_REDIS_PASSWORD_FILE"},
		{with("REDIS_PASSWORD", "p", "REDIS_ADDRS", "redis://:q@a"), "REDIS_PASSWORD", "the URL in LOCKSIDECAR_REDIS_ADDRS"},
		{with("REDIS_PASSWORD", "p", "REDIS_USERNAME", "u", "REDIS_USERNAME_FILE", short), "REDIS_USERNAME", "given 2 times"},
		{with("REDIS_PASSWORD", "p\n"), "REDIS_PASSWORD", "has a line break"},
		{with("REDIS_PASSWORD_FILE", "/does/not/exist"), "REDIS_PASSWORD_FILE", "no such file"},
		{with("REDIS_PASSWORD_FILE", empty), "REDIS_PASSWORD_FILE", "is empty"},
		{with("REDIS_PASSWORD", ""), "REDIS_PASSWORD", "set to nothing"},

		{with("STATE_DIR", "/does/not/exist"), "STATE_DIR", "does not exist; mount a memory-backed volume there"},
		{with("STATE_DIR", "state"), "STATE_DIR", "is not an absolute path"},
		{with("STATE_DIR", short), "STATE_DIR", "is not a directory"},
		{with("STATE_DIR", ""), "STATE_DIR", "set to nothing"},
		{map[string]string{"REDIS_MODE": "memory", "STATE_DIR": t.TempDir()}, "STATE_DIR", "nothing to take up again"},
		{with("STRICT", "perhaps"), "STRICT", "neither true nor false"},
		{with("REDIS_MIN_REPLICAS", "-1"), "REDIS_MIN_REPLICAS", "from 0 to 16"},
		{with("REDIS_MIN_REPLICAS", "17"), "REDIS_MIN_REPLICAS", "from 0 to 16"},
		{with("REDIS_RESTART_GUARD", "999ms"), "REDIS_RESTART_GUARD", "from 1s"},
		{with("REDIS_RESTART_GUARD", "60s", "MAX_TTL", "61s"), "MAX_TTL", "above LOCKSIDECAR_REDIS_RESTART_GUARD, which is 1m0s"},
		{with("REDIS_RESTART_GUARD", "29s"), "DEFAULT_TTL", "above LOCKSIDECAR_MAX_TTL, which is 29s"},
		{with("REDIS_MODE", "cluster", "REDIS_RESTART_GUARD", "60s"), "REDIS_RESTART_GUARD", "cannot be guarded"},
		{redlock("MAX_TTL", "61s"), "MAX_TTL", "above LOCKSIDECAR_REDIS_RESTART_GUARD, which is 1m0s"},
		{with("REDIS_ADDR", "a:1"), "REDIS_ADDR", "did you mean LOCKSIDECAR_REDIS_ADDRS?"},
		{with("DEFAULTTTL", "1s"), "DEFAULTTTL", "did you mean LOCKSIDECAR_DEFAULT_TTL?"},
		{with("STRCIT", "1"), "STRCIT", "did you mean LOCKSIDECAR_STRICT?"},
	} {
		t.Run(tt.name+" "+tt.says, func(t *testing.T) {
			_, _, mistakes := load(t, tt.env, false)
			if len(mistakes) != 1 {
				t.Fatalf("%d mistakes, want 1: %v", len(mistakes), mistakes)
			}
			if m := mistakes[0]; m.Name != "LOCKSIDECAR_"+tt.name || !strings.Contains(m.Problem, tt.says) {
				t.Errorf("%s %s\nwant it of %s, with %q", m.Name, m.Problem, tt.name, tt.says)
			}
		})
	}
}

func TestValuesAtTheEdgeAreAccepted(t *testing.T) {
	token := writeFile(t, "0123456789abcdef\n")
	for _, env := range []map[string]string{
		with("STORE_TIMEOUT", "333ms"),
		with("STORE_TIMEOUT", "10ms"),
		with("DEFAULT_TTL", "1s", "MAX_TTL", "1s", "DEFAULT_MAX_HOLD", "1s"),
		with("MAX_TTL", "8760h"),
		with("MAX_WAIT", "0s"),
		with("SHUTDOWN_GRACE", "0s"),
		with("SHUTDOWN_GRACE", "45s", "SHUTDOWN_MODE", "release"),
		with("KEY_PREFIX", strings.Repeat("p", 128)),
		with("HOLDER", strings.Repeat("h", 317)),
		with("LISTEN", "127.8.8.8:0,localhost:1,[::1]:2,unix:///run/lock.sock,[::ffff:127.0.0.1]:3"),
		with("LISTEN", ":5625", "API_TOKEN_FILE", token),
		with("LISTEN", "127.0.0.1:0", "ADMIN_LISTEN", "127.0.0.1:0"),
		with("LISTEN", "127.0.0.1:5626", "ADMIN_LISTEN", "10.0.0.1:5626"),
		with("ADMIN_LISTEN", "off"),
		with("METRIC_KEYS", "a, b/c ,ü"),
		with("LOG_LEVEL", "ERROR"),
		with("REDIS_DB", "15"),
		{"REDIS_MODE": "memory"},
	} {
		if _, warnings, mistakes := load(t, env, false); len(mistakes) > 0 || len(warnings) > 0 {
			t.Errorf("%v: mistakes %v, warnings %v", env, mistakes, warnings)
		}
	}
}

func TestThePrefixMayBeSetToNothing(t *testing.T) {
	if s := mustLoad(t, with("KEY_PREFIX", "")); s.KeyPrefix != "" {
		t.Errorf("prefix is %q", s.KeyPrefix)
	}
}

func TestTheHolderIsThePodElseTheHost(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{with(), "host-1"},
		{with("POD_NAMESPACE", "shop", "POD_NAME", "web-0"), "shop/web-0"},
		{with("POD_NAME", "web-0"), "host-1"},
		{with("POD_NAMESPACE", "shop", "POD_NAME", "web-0", "HOLDER", "me"), "me"},
	} {
		if s := mustLoad(t, tt.env); s.Holder != tt.want {
			t.Errorf("%v: holder %q, want %q", tt.env, s.Holder, tt.want)
		}
	}
	load(t, nil, true) // leaves no variable behind
	if _, _, err := LoadSettings("", true); err == nil || !strings.Contains(err.Error(), "LOCKSIDECAR_HOLDER must be set") {
		t.Errorf("without any name: %v", err)
	}
}

func TestVariablesWithoutThePrefixAreNotRead(t *testing.T) {
	for _, name := range settingNames() {
		t.Setenv(name, "%")
	}
	if s := mustLoad(t, redisAt); s.LogFormat != LogJSON || s.KeyPrefix != "lock:" {
		t.Errorf("read without prefix: format %q, prefix %q", s.LogFormat, s.KeyPrefix)
	}
}

func TestDevNeedsNoSettingAndUsesNoRedis(t *testing.T) {
	s, warnings, mistakes := load(t, map[string]string{"REDIS_MODE": "single", "REDIS_ADDRS": "redis:6379", "REDIS_PASSWORD": "p"}, true)
	if len(mistakes) > 0 || s.RedisMode != ModeMemory {
		t.Fatalf("mode %q, mistakes %v", s.RedisMode, mistakes)
	}
	if len(warnings) != 3 {
		t.Errorf("warnings: %q, want one each for the mode, the address and the password", warnings)
	}
	s, warnings, mistakes = load(t, nil, true)
	if len(warnings) > 0 || len(mistakes) > 0 || s.LogFormat != LogText || s.AdminListen.String() != "127.0.0.1:5626" {
		t.Errorf("format %q, admin door %s, warnings %q, mistakes %v", s.LogFormat, s.AdminListen, warnings, mistakes)
	}
	if s, _, _ := load(t, map[string]string{"LOG_FORMAT": "json"}, true); s.LogFormat != LogJSON {
		t.Errorf("LOG_FORMAT=json gives %q", s.LogFormat)
	}
}

func TestAShortAPITokenIsAWarning(t *testing.T) {
	_, warnings, mistakes := load(t, with("API_TOKEN_FILE", writeFile(t, "fifteen-letters\n")), false)
	if len(mistakes) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "15 characters") || strings.Contains(warnings[0], "fifteen") {
		t.Errorf("warnings %q, mistakes %v", warnings, mistakes)
	}
}

func TestAllowedHostsAreAsInTheHostHeader(t *testing.T) {
	s := mustLoad(t, with("ALLOWED_HOSTS", "Lock.Example, ::1,[fd00::0:1],10.0.0.1"))
	if got := strings.Join(s.AllowedHosts, " "); got != "lock.example [::1] [fd00::1] 10.0.0.1" {
		t.Errorf("hosts: %s", got)
	}
}
