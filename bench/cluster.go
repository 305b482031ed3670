package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	nameOne     = "one server"
	nameCluster = "cluster of three"
)

// cluster measures a sidecar on a Redis Cluster beside one on a single server.
func cluster(ctx context.Context, l *lab) ([]row, error) {
	const workers = 64
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	masters, err := l.startCluster(ctx, 3)
	for _, s := range masters {
		defer s.stop()
	}
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, s := range masters {
		addrs = append(addrs, s.addr)
	}
	var subjects []subject
	defer func() { stopAll(subjects) }()
	for name, env := range map[string][]string{
		nameOne:     {store.addr, "LOCKSIDECAR_REDIS_MODE=single"},
		nameCluster: {strings.Join(addrs, ","), "LOCKSIDECAR_REDIS_MODE=cluster"},
	} {
		s, err := l.startSidecar(ctx, env[0], env[1])
		if err != nil {
			return nil, err
		}
		one := s.subject()
		one.name = name
		subjects = append(subjects, one)
	}

	clients, err := l.warmClients(ctx, subjects, workers)
	defer closeEvery(clients)
	if err != nil {
		return nil, err
	}
	p50, p99, rate := series{}, series{}, series{}
	err = rotate(l.rounds(), subjects, func(i int) error {
		took, err := timeCycles(ctx, clients[i][0], "latency", l.slice())
		if err != nil {
			return err
		}
		p50.add(subjects[i].name, float64(percentile(took, 50)))
		p99.add(subjects[i].name, float64(percentile(took, 99)))
		perSecond, err := countCycles(ctx, clients[i], l.slice())
		rate.add(subjects[i].name, perSecond)
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, name := range []string{nameOne, nameCluster} {
		r := row{
			What:    fmt.Sprintf("a sidecar on a Redis Cluster: acquire + release, one worker and %d", workers),
			Subject: name,
			Result: fmt.Sprintf("p50 %s, p99 %s; %.0f/s", fineMillis(time.Duration(median(p50[name]))),
				fineMillis(time.Duration(median(p99[name]))), median(rate[name])),
		}
		if name == nameCluster {
			r.Result += fmt.Sprintf(" (p50 %.2f ×, cycles %.2f × one server)", p50.ratio(name, nameOne), rate.ratio(name, nameOne))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// startCluster starts masters that share all slots.
func (l *lab) startCluster(ctx context.Context, n int) (masters []*redisServer, err error) {
	const slots = 16384
	for range n {
		s, err := l.startClusterNode(ctx)
		if err != nil {
			return masters, err
		}
		masters = append(masters, s)
	}
	for i, s := range masters {
		if err := s.admin.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			return masters, err
		}
		// Else all begin with the same epoch, and have to settle that.
		if err := s.admin.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return masters, err
		}
		host, port, err := net.SplitHostPort(masters[0].addr)
		if err != nil {
			return masters, err
		}
		if i > 0 {
			if err := s.admin.ClusterMeet(ctx, host, port).Err(); err != nil {
				return masters, err
			}
		}
	}
	for _, s := range masters {
		err := s.await(ctx, func() error {
			info, err := s.admin.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", n))) {
				err = fmt.Errorf("the cluster is not whole:\n%s", info)
			}
			return err
		})
		if err != nil {
			return masters, err
		}
	}
	return masters, nil
}

// startClusterNode starts a server that can be part of a cluster. Its second
// port is 10,000 above the first.
func (l *lab) startClusterNode(ctx context.Context) (*redisServer, error) {
	for {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number+10_000)))
		if err != nil {
			continue // there is none, or it is taken
		}
		_ = bus.Close()
		p, err := start("redis-server", nil, "redis-server",
			"--bind", "127.0.0.1", "--port", port, "--dir", l.dir, "--save", "", "--appendonly", "no",
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes-"+port+".conf")
		if err != nil {
			return nil, err
		}
		s := &redisServer{process: p, addr: addr, admin: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})}
		if err := s.await(ctx, func() error { return s.admin.Ping(ctx).Err() }); err != nil {
			s.stop()
			return nil, err
		}
		return s, nil
	}
}
