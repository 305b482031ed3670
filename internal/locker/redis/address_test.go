package redis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAddressesAreReadInEverySpelling(t *testing.T) {
	for text, want := range map[string]address{
		"redis":                           {network: "tcp", addr: "redis:6379", db: -1},
		"redis:1234":                      {network: "tcp", addr: "redis:1234", db: -1},
		"127.0.0.1:1":                     {network: "tcp", addr: "127.0.0.1:1", db: -1},
		"[::1]:6380":                      {network: "tcp", addr: "[::1]:6380", db: -1},
		"::1":                             {network: "tcp", addr: "[::1]:6379", db: -1},
		"redis://h":                       {network: "tcp", addr: "h:6379", db: -1},
		"redis://h:7/":                    {network: "tcp", addr: "h:7", db: -1},
		"redis://h:7/3":                   {network: "tcp", addr: "h:7", db: 3},
		"redis://u:p%40ss@h:7/0":          {network: "tcp", addr: "h:7", username: "u", password: "p@ss"},
		"redis://:p@h":                    {network: "tcp", addr: "h:6379", password: "p", db: -1},
		"rediss://[::1]:7/2":              {network: "tcp", addr: "[::1]:7", tls: true, db: 2},
		"unix:///run/redis.sock":          {network: "unix", addr: "/run/redis.sock", db: -1},
		"unix://u:p@/run/redis.sock?db=4": {network: "unix", addr: "/run/redis.sock", username: "u", password: "p", db: 4},
	} {
		if got, err := parseAddress(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestABadAddressIsRefusedWithoutQuotingIt(t *testing.T) {
	for _, text := range []string{
		"", ":6379", "h:", "h:0", "h:65536", "h:x", "a:b:c", "h h", "u:SECRET@h:1",
		"http://h", "redis://", "redis://:SECRET@", "redis://u:SECRET@h:x", "redis://u:SECRET%zz@h",
		"redis://h/x", "redis://h/-1", "redis://h/1/2", "redis://u:SECRET@h?db=1", "redis://u:SEC#RET@h",
		"unix://", "unix://run/s", "unix:///s?x=1", "unix:///s?db=1&db=2", "unix:///s?db=SECRET",
	} {
		got, err := parseAddress(text)
		if err == nil {
			t.Errorf("%q was read as %+v", text, got)
		} else if strings.Contains(err.Error(), "SEC") {
			t.Errorf("%q: the error quotes it: %v", text, err)
		}
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	for name, config := range map[string]Config{
		"no address":       {},
		"two addresses":    {Addrs: []string{"a:1", "b:1"}},
		"a bad address":    {Addrs: []string{"redis://:SECRET@"}},
		"a brace":          {Addrs: []string{"a:1"}, KeyPrefix: "{x}"},
		"negative timeout": {Addrs: []string{"a:1"}, StoreTimeout: -1},
		"negative DB":      {Addrs: []string{"a:1"}, DB: -1},
	} {
		if b, err := New(config); err == nil {
			b.Close()
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
}

func TestASecretFileIsReadEachTimeWithoutItsLineBreak(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	secret := File(path)
	if _, err := secret(); err == nil {
		t.Error("a missing file is no error")
	}
	for _, content := range []string{"one\n", "two\r\n", " three "} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := secret(); err != nil || got != strings.TrimRight(content, "\r\n") {
			t.Errorf("read %q from %q, %v", got, content, err)
		}
	}
}
