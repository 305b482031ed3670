package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Unknown is what a ServerInfo says where the server does not tell, usually
// because our user may not ask.
const Unknown = "unknown"

// ServerInfo describes a server, for people. Each text may be Unknown.
type ServerInfo struct {
	Addr            string
	Version         string
	RunID           string // another after each start of the server
	Role            string // master or slave
	MaxmemoryPolicy string
	Persistence     string // none, rdb, aof or rdb+aof
	Replicas        int    // connected now; -1 if unknown

	// MinReplicas is without how many replicas the server refuses writes; -1 if
	// unknown. It is asked for behind Sentinels alone.
	MinReplicas int

	// ClockStep is the latest jump of the server's clock within the last hour.
	ClockStep time.Duration
}

// Report is what the servers that decide on locks tell of themselves.
type Report struct {
	Servers  []ServerInfo // of those that answer
	Warnings []Warning    // at most one of each check
}

// Report asks the servers about themselves. It fails only if none answers; what
// our user may not ask is Unknown, and a warning.
func (b *Backend) Report(ctx context.Context) (Report, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if _, err := b.servers.route(ctx, &call{}); err != nil {
		return Report{}, err
	}
	nodes, _ := b.servers.all()
	if len(nodes) == 0 { // it has been given up since
		return Report{}, notFound(nil)
	}
	infos, errs := make([]ServerInfo, len(nodes)), make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() { infos[i], errs[i] = b.describe(ctx, n) })
	}
	asking.Wait()
	b.publishAgain(ctx, nodes[0])
	var r Report
	for i, info := range infos {
		if errs[i] == nil {
			r.Servers = append(r.Servers, info)
		}
	}
	if len(r.Servers) == 0 {
		return Report{}, errors.Join(errs...)
	}
	r.Warnings = b.warnings(r.Servers)
	return r, nil
}

// describe asks one server about itself.
func (b *Backend) describe(ctx context.Context, n *node) (ServerInfo, error) {
	text, err := b.ask(ctx, n, lackInfo, "info")
	if err != nil {
		return ServerInfo{}, err
	}
	saves, err := b.ask(ctx, n, lackConfig, "config", "get", "save")
	if err != nil {
		return ServerInfo{}, err
	}
	fields := infoFields(text)
	s := ServerInfo{
		Addr:            n.address.String(),
		Version:         orUnknown(fields["redis_version"]),
		RunID:           orUnknown(fields["run_id"]),
		Role:            orUnknown(fields["role"]),
		MaxmemoryPolicy: orUnknown(fields["maxmemory_policy"]),
		Persistence:     Unknown,
		Replicas:        orUnknownNumber(fields["connected_slaves"]),
		MinReplicas:     -1,
		ClockStep:       n.clock.lately(b.now()),
	}
	aof := fields["aof_enabled"]
	switch save, ok := settingIn(saves); {
	case ok && aof != "":
		s.Persistence = persistence(save != "", aof == "1")
	case aof == "1":
		s.Persistence = persistence(false, true) // to say the least
	}
	if b.kind == Sentinel {
		least, err := b.ask(ctx, n, lackConfig, "config", "get", "min-replicas-to-write")
		if err != nil {
			return ServerInfo{}, err
		}
		if number, ok := settingIn(least); ok {
			s.MinReplicas = orUnknownNumber(number)
		}
	}
	return s, nil
}

// ask sends a command that we may not be permitted, which is told as what we
// lack; the reply is nil then.
func (b *Backend) ask(ctx context.Context, n *node, l lack, command ...any) (any, error) {
	c := &call{plain: command}
	err := n.acquire.do(ctx, c)
	if err == nil {
		b.lacks.granted(l)
		return c.reply[0], nil
	}
	if text, refused := replyIn(err); refused && forbidden(text) {
		b.lacks.denied(l, n.address)
		return nil, nil
	}
	return nil, err
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

// settingIn reads the answer to a CONFIG GET of one setting.
func settingIn(reply any) (value string, ok bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return "", false
	}
	value, ok = pair[1].(string)
	return value, ok
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

func orUnknownNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
