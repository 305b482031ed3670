package redis

import (
	"slices"
	"testing"
)

func TestWarningsAreGivenForSettingsThatEndangerLocks(t *testing.T) {
	good := ServerInfo{Version: "7.0.15", Role: "master", MaxmemoryPolicy: "noeviction", Persistence: "aof"}
	for _, c := range []struct {
		name   string
		change func(*ServerInfo)
		want   []string
	}{
		{"a good server", func(*ServerInfo) {}, nil},
		{"eviction", func(s *ServerInfo) { s.MaxmemoryPolicy = "volatile-ttl" }, []string{"eviction"}},
		{"no persistence", func(s *ServerInfo) { s.Persistence = "none" }, []string{"persistence"}},
		{"an old version", func(s *ServerInfo) { s.Version = "6.0.16" }, []string{"version"}},
		{"the oldest version", func(s *ServerInfo) { s.Version = "6.2.0" }, nil},
		{"a version of two digits", func(s *ServerInfo) { s.Version = "10.0.1" }, nil},
		{"a version that cannot be read", func(s *ServerInfo) { s.Version = "unstable" }, nil},
		{"a replica", func(s *ServerInfo) { s.Role = "slave" }, []string{"role"}},
		{"a server that tells nothing", func(s *ServerInfo) { *s = ServerInfo{Unknown, Unknown, Unknown, Unknown, Unknown} }, nil},
		{"all at once", func(s *ServerInfo) { *s = ServerInfo{"5.0.1", "x", "slave", "allkeys-lru", "none"} }, CheckNames},
	} {
		s := good
		c.change(&s)
		var got []string
		for _, w := range s.Warnings() {
			got = append(got, w.Check)
			if w.Message == "" {
				t.Errorf("%s: the warning %s has no message", c.name, w.Check)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
