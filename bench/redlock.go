package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredispool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	nameFailFast = "redsync, fail fast"

	// nodeTimeout is the sidecar's default: half of STORE_TIMEOUT.
	nodeTimeout = 150 * time.Millisecond

	// slowBy is how much later the answers of a slow server come.
	slowBy = 20 * time.Millisecond
)

// redlock measures majorities of three and of five servers, all well and with
// one that is slow, dead or frozen: locksidecar and redsync, on the same
// servers.
func redlock(ctx context.Context, l *lab) ([]row, error) {
	var rows []row
	for _, n := range []int{3, 5} {
		more, err := l.redlockOf(ctx, n)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// troubles are what befalls one of the servers, in turn.
var troubles = []struct {
	name string
	make func(*nodes)
	end  func(*nodes)
}{
	{"all well", func(*nodes) {}, func(*nodes) {}},
	{fmt.Sprintf("one %v slower", slowBy), func(n *nodes) { n.relay.delay.Store(int64(slowBy)) }, func(n *nodes) { n.relay.delay.Store(0) }},
	{"one that freezes and goes on", (*nodes).flap, func(n *nodes) { n.calm(); n.signal(syscall.SIGCONT) }},
	{"one frozen", func(n *nodes) { n.signal(syscall.SIGSTOP) }, func(n *nodes) { n.signal(syscall.SIGCONT) }},
	{"one dead", func(n *nodes) { n.servers[0].kill() }, func(*nodes) {}}, // the last: it stays so
}

func (l *lab) redlockOf(ctx context.Context, n int) (rows []row, err error) {
	const workers = 64
	nodes, err := l.startNodes(ctx, n)
	if err != nil {
		return nil, err
	}
	defer nodes.stop()
	subjects, err := l.openMajority(ctx, nodes)
	if err != nil {
		return nil, err
	}
	defer stopAll(subjects)
	clients, err := l.warmClients(ctx, subjects, workers)
	defer closeEvery(clients)
	if err != nil {
		return nil, err
	}

	var healthy float64 // our p99
	for _, trouble := range troubles {
		trouble.make(nodes)
		p50, p99, rate := series{}, series{}, series{}
		cycles, failures := make(map[string]int), make(map[string]int)
		err := rotate(l.crowdRounds(), subjects, func(i int) error {
			name := subjects[i].name
			one := tryCycles(ctx, clients[i][:1], l.slice())
			p50.add(name, float64(percentile(one.took, 50)))
			p99.add(name, float64(percentile(one.took, 99)))
			runtime.GC()
			many := tryCycles(ctx, clients[i], l.slice())
			rate.add(name, float64(len(many.took))/many.lasted.Seconds())
			cycles[name] += len(one.took) + len(many.took)
			failures[name] += one.failures + many.failures
			return ctx.Err()
		})
		trouble.end(nodes)
		if err != nil {
			return rows, fmt.Errorf("%d servers, %s: %w", n, trouble.name, err)
		}
		for _, s := range subjects {
			r := row{
				What:    fmt.Sprintf("Redlock, %d servers, %s: acquire + release, one worker and %d", n, trouble.name, workers),
				Subject: s.name,
				Result: fmt.Sprintf("p50 %s, p99 %s; %.0f/s", fineMillis(time.Duration(median(p50[s.name]))),
					fineMillis(time.Duration(median(p99[s.name]))), median(rate[s.name])),
			}
			if failed := failures[s.name]; failed > 0 {
				r.Result += fmt.Sprintf("; %.2g %% failed", 100*float64(failed)/float64(failed+cycles[s.name]))
			}
			rows = append(rows, r)
		}
		ours := median(p99[nameSidecar])
		if healthy == 0 {
			healthy = ours
			continue
		}
		at := len(rows) - len(subjects)
		rows[at] = rows[at].withGoal(fmt.Sprintf("p99 ≤ %v + all well, none failed", nodeTimeout),
			ours <= float64(nodeTimeout)+healthy && failures[nameSidecar] == 0)
	}
	return rows, nil
}

// tries is what workers did of whom some may have failed.
type tries struct {
	took     []int64 // ns that each cycle took that did not fail
	failures int
	lasted   time.Duration
}

// tryCycles has every worker acquire and release a key of its own, over and
// over. After a failure it goes on with another key: what is left at the one may
// be in its way.
func tryCycles(ctx context.Context, clients []client, during time.Duration) (t tries) {
	var mu sync.Mutex
	var working sync.WaitGroup
	begin := time.Now()
	for i, c := range clients {
		working.Go(func() {
			var took []int64
			failures := 0
			for time.Since(begin) < during && ctx.Err() == nil {
				start := time.Now()
				if cycle(ctx, c, fmt.Sprintf("own-%d-%d-%d", i, begin.UnixNano(), failures)) != nil {
					failures++
				} else {
					took = append(took, int64(time.Since(start)))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			t.took, t.failures = append(t.took, took...), t.failures+failures
		})
	}
	working.Wait()
	t.lasted = time.Since(begin)
	return t
}

// nodes are servers that know nothing of each other. The first is reached
// through a relay, which can make it slow, by everybody.
type nodes struct {
	servers []*redisServer
	relay   *relay
	calm    func() // ends what flap began
}

func (l *lab) startNodes(ctx context.Context, n int) (all *nodes, err error) {
	all = &nodes{}
	defer func() {
		if err != nil {
			all.stop()
		}
	}()
	for range n {
		s, err := l.startRedis(ctx)
		if err != nil {
			return nil, err
		}
		all.servers = append(all.servers, s)
		if err := s.markOld(ctx); err != nil {
			return nil, err
		}
	}
	all.relay, err = startRelay(all.servers[0].addr)
	return all, err
}

// guard is the sidecar's default in its mode for several servers.
const guard = time.Minute

// markOld makes a server one that sidecars know to have its data: they would
// wait for a new one for as long as the guard.
func (s *redisServer) markOld(ctx context.Context) error {
	info, err := s.admin.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	run := info["Server"]["run_id"]
	if run == "" {
		return errors.New("the server does not tell its run")
	}
	return s.admin.Set(ctx, "lock:#guard", fmt.Sprintf("%s %d %d", run, guard.Milliseconds(), time.Now().Add(-time.Hour).UnixMicro()), 0).Err()
}

func (n *nodes) addrs() []string {
	addrs := []string{n.relay.addr()}
	for _, s := range n.servers[1:] {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// flap freezes the server for 40 ms in 60, until calm.
func (n *nodes) flap() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			n.signal(syscall.SIGSTOP)
			time.Sleep(40 * time.Millisecond)
			n.signal(syscall.SIGCONT)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	n.calm = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
}

func (n *nodes) signal(sig syscall.Signal) { _ = n.servers[0].cmd.Process.Signal(sig) }

func (n *nodes) stop() {
	if n.calm != nil {
		n.calm()
	}
	if n.relay != nil {
		n.relay.close()
	}
	for _, s := range n.servers {
		s.stop()
	}
}

// openMajority starts the subjects, ours first.
func (l *lab) openMajority(ctx context.Context, n *nodes) ([]subject, error) {
	ours, err := l.startSidecar(ctx, strings.Join(n.addrs(), ","), "LOCKSIDECAR_REDIS_MODE=redlock")
	if err != nil {
		return nil, err
	}
	return []subject{ours.subject(), redsyncMajority(nameRedsync, n.addrs()), redsyncMajority(nameFailFast, n.addrs(), redsync.WithFailFast(true))}, nil
}

// redsyncMajority is redsync as it is by default, with an expiry like that of
// all subjects and without tries beyond the first; and what else is said.
func redsyncMajority(name string, addrs []string, options ...redsync.Option) subject {
	var clients []*redis.Client
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		rdb := newGoRedis(addr)
		clients, pools = append(clients, rdb), append(pools, goredispool.NewPool(rdb))
	}
	rs := redsync.New(pools...)
	return subject{
		name: name,
		open: func(context.Context) (client, error) { return &redsyncMajorityClient{rs: rs, options: options}, nil },
		stop: func() {
			for _, rdb := range clients {
				_ = rdb.Close()
			}
		},
	}
}

type redsyncMajorityClient struct {
	rs      *redsync.Redsync
	options []redsync.Option
	mutex   *redsync.Mutex
}

func (c *redsyncMajorityClient) Acquire(ctx context.Context, key string) error {
	options := append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(1)}, c.options...)
	c.mutex = c.rs.NewMutex("redsync:"+key, options...)
	return c.mutex.LockContext(ctx)
}

// Release is done when a majority has given it back; the library also returns
// the errors of the others.
func (c *redsyncMajorityClient) Release(ctx context.Context) error {
	if ok, err := c.mutex.UnlockContext(ctx); !ok {
		return err
	}
	return nil
}

func (c *redsyncMajorityClient) Close() {}
