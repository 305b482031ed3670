package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAddressesOfRedisInEverySpelling(t *testing.T) {
	for _, tt := range []struct {
		text    string
		network string
		address string
		tls     bool
		db      int
	}{
		{"redis:6379", "tcp", "redis:6379", false, 0},
		{"[::1]:7000", "tcp", "[::1]:7000", false, 0},
		{"redis://redis", "tcp", "redis:6379", false, 0},
		{"redis://redis/", "tcp", "redis:6379", false, 0},
		{"redis://redis:7000/3", "tcp", "redis:7000", false, 3},
		{"redis://[::1]", "tcp", "[::1]:6379", false, 0},
		{"rediss://redis.example/0", "tcp", "redis.example:6379", true, 0},
		{"unix:///run/redis.sock", "unix", "/run/redis.sock", false, 0},
		{" redis:6379 ", "tcp", "redis:6379", false, 0},
	} {
		s := mustLoad(t, with("REDIS_ADDRS", tt.text))
		if a := s.RedisAddrs[0]; a.Network != tt.network || a.Address != tt.address || s.RedisTLS != tt.tls || s.RedisDB != tt.db {
			t.Errorf("%q is %s %s, TLS %v, database %d", tt.text, a.Network, a.Address, s.RedisTLS, s.RedisDB)
		}
	}
}

func TestAWrongAddressIsRefusedWithoutRepeatingIt(t *testing.T) {
	for _, text := range []string{
		"hunter2", "hunter2:", ":6379", "hunter2:0", "hunter2:65536", "hunter2:redis",
		"user:hunter2@redis:6379", "hunter2@redis:6379",
		"http://user:hunter2@redis", "hunter2://redis",
		"redis://", "redis://:6379", "redis://user:hunter2@", "redis://user:hunter2@:6379",
		"redis://user:hun/hunter2@redis", "redis://user:hun#hunter2@redis", "redis://user:hunter2%@redis", "redis://user:hun?hunter2@redis",
		"redis://user:hunter2@redis/db", "redis://user:hunter2@redis/-1", "redis://user:hunter2@redis/1/2", "redis://user:hunter2@redis/2147483648",
		"redis://redis?password=hunter2", "redis://redis#hunter2",
		"unix://hunter2/redis.sock", "unix://", "unix:///",
	} {
		_, _, mistakes := load(t, with("REDIS_ADDRS", text), false)
		if len(mistakes) != 1 || mistakes[0].Name != "LOCKSIDECAR_REDIS_ADDRS" {
			t.Errorf("%q: mistakes %v, want one of the address", text, mistakes)
		}
		if printed := fmt.Sprint(mistakes); strings.Contains(printed, "hunter2") {
			t.Errorf("%q is repeated in %s", text, printed)
		}
	}
}

func TestCredentialsComeFromTheirOneSource(t *testing.T) {
	user, password := writeFile(t, "alice\n"), writeFile(t, "hunter2\r\n")
	for _, tt := range []struct {
		env            map[string]string
		user, password string
	}{
		{with(), "", ""},
		{with("REDIS_PASSWORD", "hunter2"), "", "hunter2"},
		{with("REDIS_USERNAME", "alice", "REDIS_PASSWORD", "hunter2"), "alice", "hunter2"},
		{with("REDIS_USERNAME_FILE", user, "REDIS_PASSWORD_FILE", password), "alice", "hunter2"},
		{with("REDIS_ADDRS", "redis://alice:hunter%402@redis"), "alice", "hunter@2"},
		{with("REDIS_ADDRS", "redis://:hunter2@redis"), "", "hunter2"},
		{with("REDIS_ADDRS", "redis://alice@redis", "REDIS_PASSWORD_FILE", password), "alice", "hunter2"},
		{with("REDIS_ADDRS", "unix://alice:hunter2@/run/redis.sock"), "alice", "hunter2"},
	} {
		s := mustLoad(t, tt.env)
		if user := tell(t, s.UsernameSource()); user != tt.user {
			t.Errorf("%v: user %q, want %q", tt.env, user, tt.user)
		}
		if password := tell(t, s.PasswordSource()); password != tt.password {
			t.Errorf("%v: password %q, want %q", tt.env, password, tt.password)
		}
	}
}

// tell returns what the source tells, or "" if there is none.
func tell(t *testing.T, source func() (string, error)) string {
	t.Helper()
	if source == nil {
		return ""
	}
	text, err := source()
	if err != nil {
		t.Error(err)
	}
	return text
}

func TestTopologyNamesTheServerWithoutCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"redis:6379":                       "single redis:6379",
		"rediss://alice:hunter2@redis/2":   "single redis:6379",
		"unix://alice:hunter2@/run/r.sock": "single unix:///run/r.sock",
		"unix:///run/100%25.sock":          "single unix:///run/100%25.sock",
	} {
		s := mustLoad(t, with("REDIS_ADDRS", text))
		if got := s.Topology(); got != want {
			t.Errorf("%s: topology %q, want %q", text, got, want)
		}
	}
	if s := mustLoad(t, map[string]string{"REDIS_MODE": "memory"}); s.Topology() != "memory" {
		t.Errorf("topology %q, want memory", s.Topology())
	}
}

func TestSeveralServersAreNamedInAnyOrder(t *testing.T) {
	for _, tt := range []struct {
		env      map[string]string
		topology string
		tls      bool
	}{
		{sentinel("REDIS_ADDRS", "b:2, a:1,rediss://c"), "sentinel mymaster a:1,b:2,c:26379", true},
		{sentinel("REDIS_ADDRS", "redis://a"), "sentinel mymaster a:26379", false},
		{with("REDIS_MODE", "cluster", "REDIS_ADDRS", "b:2,redis://a"), "cluster a:6379,b:2", false},
		{redlock(), "redlock a:1,b:2,c:3", false},
		{redlock("REDIS_ADDRS", "c:3,rediss://b:2,a:1", "REDIS_DB", "2"), "redlock a:1,b:2,c:3", true},
		{with("REDIS_MODE", "cluster", "REDIS_ADDRS", "b:2,a:1", "REDIS_TLS", "true"), "cluster a:1,b:2", true},
	} {
		s := mustLoad(t, tt.env)
		if got := s.Topology(); got != tt.topology || s.RedisTLS != tt.tls {
			t.Errorf("%v: topology %q, TLS %v", tt.env, got, s.RedisTLS)
		}
	}
	user, password := writeFile(t, "alice\n"), writeFile(t, "hunter2\n")
	s := mustLoad(t, sentinel("SENTINEL_USERNAME_FILE", user, "SENTINEL_PASSWORD_FILE", password, "REDIS_PASSWORD", "other"))
	if u, p, other := tell(t, s.SentinelUsernameSource()), tell(t, s.SentinelPasswordSource()), tell(t, s.PasswordSource()); u != "alice" || p != "hunter2" || other != "other" {
		t.Errorf("the Sentinels are told %q and %q, the master %q", u, p, other)
	}
}

func TestAServerHasHalfOfTheStoresTimeUnlessItIsSaid(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want time.Duration
	}{
		{redlock(), 150 * time.Millisecond},
		{redlock("STORE_TIMEOUT", "100ms"), 50 * time.Millisecond},
		{redlock("REDIS_NODE_TIMEOUT", "20ms"), 20 * time.Millisecond},
	} {
		if s := mustLoad(t, tt.env); s.RedisNodeTimeout != tt.want {
			t.Errorf("%v: %v, want %v", tt.env, s.RedisNodeTimeout, tt.want)
		}
	}
}

func TestNoLeaseOutlastsTheRestartGuard(t *testing.T) {
	for _, tt := range []struct {
		env           map[string]string
		guard, maxTTL time.Duration
	}{
		{with(), 0, 24 * time.Hour},
		{with("REDIS_RESTART_GUARD", "2m"), 2 * time.Minute, 2 * time.Minute},
		{with("REDIS_RESTART_GUARD", "2m", "MAX_TTL", "1m"), 2 * time.Minute, time.Minute},
		{with("REDIS_RESTART_GUARD", "48h"), 48 * time.Hour, 24 * time.Hour},
		{redlock(), time.Minute, time.Minute},
		{redlock("REDIS_RESTART_GUARD", "1h"), time.Hour, time.Hour},
		{redlock("REDIS_RESTART_GUARD", "0s"), 0, 24 * time.Hour},
	} {
		if s := mustLoad(t, tt.env); s.RedisRestartGuard != tt.guard || s.MaxTTL != tt.maxTTL {
			t.Errorf("%v: the guard is %v and the longest lease %v, want %v and %v", tt.env, s.RedisRestartGuard, s.MaxTTL, tt.guard, tt.maxTTL)
		}
	}
	if _, warnings, _ := load(t, redlock("REDIS_RESTART_GUARD", "0s"), false); len(warnings) != 1 || !strings.Contains(warnings[0], "two can have a lock") {
		t.Errorf("warnings without a guard: %v", warnings)
	}
}

// redlock returns settings of that mode.
func redlock(pairs ...string) map[string]string {
	return with(append([]string{"REDIS_MODE", "redlock", "REDIS_ADDRS", "b:2,a:1,c:3"}, pairs...)...)
}

// sentinel returns settings of that mode.
func sentinel(pairs ...string) map[string]string {
	return with(append([]string{"REDIS_MODE", "sentinel", "SENTINEL_MASTER", "mymaster"}, pairs...)...)
}

func FuzzParsingAnAddressNeverTellsThePassword(f *testing.F) {
	for _, seed := range []string{"redis://user:%s@redis", "rediss://:%s@[::1]:7/1", "unix://u:%s@/s", "%s", "%s@a:1", "redis://a?%s", "redis://a/%s", "://%s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const password = "hunter2hunter2"
		text = strings.ReplaceAll(text, "%s", password)
		addr, err := parseRedisAddr(text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if addr.Network == "tcp" && checkHostPort(addr.Address) != nil || addr.Network == "unix" && addr.Address[0] != '/' {
			t.Errorf("%q is accepted as %s %q", text, addr.Network, addr.Address)
		}
		if strings.Contains(text, "@") && strings.Contains(fmt.Sprintf("%+v", addr.password), password) {
			t.Errorf("%q prints its password", text)
		}
	})
}
