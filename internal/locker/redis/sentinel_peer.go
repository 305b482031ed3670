package redis

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

// peer is one Sentinel.
type peer struct {
	connector *connector
	asking    *pipeline
}

func newPeer(all *nodes, a Address) *peer {
	c := all.connector(a, greetSentinel)
	c.username, c.password, c.db = all.config.SentinelUsername, all.config.SentinelPassword, 0
	return &peer{connector: c, asking: all.pipeline("sentinel", c, 1)}
}

// ask returns the master that the Sentinel names. The epoch tells those apart
// that it named before and after a failover; it is 0 if we may not ask.
func (p *peer) ask(ctx context.Context, name string) (sighting, error) {
	where := &call{plain: []any{"sentinel", "get-master-addr-by-name", name}}
	about := &call{plain: []any{"sentinel", "master", name}}
	p.asking.submit(ctx, where)
	p.asking.submit(ctx, about)
	err := p.asking.await(ctx, where)
	aboutErr := p.asking.await(ctx, about)
	switch {
	case unknownCommand(err):
		return sighting{}, wrongKind(p.connector.address, aSentinel, noSentinel)
	case err != nil:
		return sighting{}, err
	}
	pair, _ := where.reply[0].([]any)
	if len(pair) != 2 {
		return sighting{}, errNoMaster(p.connector.address, name)
	}
	host, _ := pair[0].(string)
	port, _ := pair[1].(string)
	seen := sighting{address: TCP(net.JoinHostPort(host, port))}
	if aboutErr == nil {
		seen.epoch = epochOf(about.reply[0])
	}
	return seen, nil
}

// epochOf finds the epoch among what a Sentinel tells of a master: names and
// values in turn.
func epochOf(reply any) int64 {
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "config-epoch" {
			text, _ := fields[i+1].(string)
			epoch, _ := strconv.ParseInt(text, 10, 64)
			return epoch
		}
	}
	return 0
}

// follow calls changed whenever the Sentinel says that the name has another
// master, or may have said so unheard, until ctx is over.
func (p *peer) follow(ctx context.Context, name string, changed func()) {
	pause := resubscribeMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_ = hear(ctx, p.connector, "+switch-master", func() {
			pause = resubscribeMin
			changed()
		}, func(payload string) {
			if of, _, _ := strings.Cut(payload, " "); of == name {
				changed()
			}
		})
		timer.Reset(pause - rand.N(pause/2))
		pause = min(2*pause, resubscribeMax)
	}
}
