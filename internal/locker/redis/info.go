package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Unknown is what a ServerInfo says where the server does not tell, usually
// because our user may not ask.
const Unknown = "unknown"

// ServerInfo describes the server, for people. Each field may be Unknown.
type ServerInfo struct {
	Version         string
	RunID           string // another after each start of the server
	Role            string // master or slave
	MaxmemoryPolicy string
	Persistence     string // none, rdb, aof or rdb+aof
}

// ServerInfo asks the server about itself. It fails only if there is no
// answer; what our user may not ask is Unknown.
func (b *Backend) ServerInfo(ctx context.Context) (ServerInfo, error) {
	info, err := b.ask(ctx, "info")
	if err != nil {
		return ServerInfo{}, err
	}
	fields := infoFields(info)
	s := ServerInfo{
		Version:         orUnknown(fields["redis_version"]),
		RunID:           orUnknown(fields["run_id"]),
		Role:            orUnknown(fields["role"]),
		MaxmemoryPolicy: orUnknown(fields["maxmemory_policy"]),
		Persistence:     Unknown,
	}
	saves, err := b.ask(ctx, "config", "get", "save")
	if err != nil {
		return ServerInfo{}, err
	}
	if pair, ok := saves.([]any); ok && len(pair) == 2 && fields["aof_enabled"] != "" {
		s.Persistence = persistence(pair[1] != "", fields["aof_enabled"] == "1")
	}
	return s, nil
}

// ask sends a command that the server may refuse; the reply is nil then.
func (b *Backend) ask(ctx context.Context, command ...any) (any, error) {
	c := &call{plain: command}
	if err := b.node.acquire.do(ctx, c); err != nil {
		if c.refused {
			return nil, nil
		}
		return nil, err
	}
	return c.reply[0], nil
}

func infoFields(reply any) map[string]string {
	text, _ := reply.(string)
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func persistence(rdb, aof bool) string {
	switch {
	case rdb && aof:
		return "rdb+aof"
	case rdb:
		return "rdb"
	case aof:
		return "aof"
	}
	return "none"
}

func orUnknown(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}

// Warning is a setting of the server that endangers locks.
type Warning struct {
	Check   string // eviction, persistence, version or role
	Message string // for people
}

// CheckNames lists the checks.
var CheckNames = []string{"eviction", "persistence", "version", "role"}

// Checks asks the server about itself and returns the warnings.
func (b *Backend) Checks(ctx context.Context) ([]Warning, error) {
	s, err := b.ServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	return s.Warnings(), nil
}

// Warnings returns what is wrong with the settings. What the server does not
// tell is not warned of.
func (s ServerInfo) Warnings() []Warning {
	var all []Warning
	warn := func(check, format string, args ...any) {
		all = append(all, Warning{check, fmt.Sprintf(format, args...)})
	}
	if s.MaxmemoryPolicy != Unknown && s.MaxmemoryPolicy != "noeviction" {
		warn("eviction", "maxmemory-policy is %s: when memory is short Redis deletes locks that are held; use noeviction", s.MaxmemoryPolicy)
	}
	if s.Persistence == "none" {
		warn("persistence", "nothing is persisted: after a restart of Redis locks that are still held can be taken by others")
	}
	if s.Version != Unknown && !atLeast(s.Version, 6, 2) {
		warn("version", "Redis %s is older than 6.2, the oldest that is supported", s.Version)
	}
	if s.Role != Unknown && s.Role != "master" {
		warn("role", "the server is a %s, and only a master can grant locks", s.Role)
	}
	return all
}

// atLeast compares a version such as 7.0.15; what cannot be read is new enough.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	gotMajor, err := strconv.Atoi(parts[0])
	if err != nil {
		return true
	}
	gotMinor, err := strconv.Atoi(parts[1])
	if err != nil {
		return true
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}
