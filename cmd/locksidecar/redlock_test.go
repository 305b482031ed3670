package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// majority is the servers of a quorum.
type majority []*redistest.Server

func startMajority(t testing.TB, n int) majority {
	t.Helper()
	return redistest.Config{}.StartMany(t, n)
}

// env returns the settings of a sidecar on all of them.
func (m majority) env(more ...string) []string {
	var addrs []string
	for _, s := range m {
		addrs = append(addrs, s.Addr())
	}
	// Servers that have just been started would be waited for.
	return append([]string{"REDIS_MODE=redlock", "REDIS_ADDRS=" + strings.Join(addrs, ","), "REDIS_RESTART_GUARD=0s"}, more...)
}

// on starts a sidecar on all of them, and returns once it can grant locks.
func (m majority) on(t testing.TB, more ...string) *proc {
	t.Helper()
	p := startSidecar(t, m.env(more...)...)
	eventually(t, 20*time.Second, "the sidecar is ready", func() bool {
		status, _ := p.Ready()
		return status == 200
	})
	return p
}

// with returns how many of the servers have something at the lock's key.
func (m majority) with(key string) (n int) {
	for _, s := range m {
		if value, err := s.Try("GET", "lock:"+key); err == nil && value != nil {
			n++
		}
	}
	return n
}

func TestAMajorityDecides(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	turned := majority{m[2], m[0], m[1]}
	s1, s2 := m.on(t, "HOLDER=shop/pod-1"), turned.on(t)
	s1.AwaitLog(`"topology":"redlock 127.0.0.1:`)
	scopeOf := func(p *proc) string {
		_, after, _ := strings.Cut(p.Metrics(), `locksidecar_config_info{mode="redlock",scope="`)
		scope, _, _ := strings.Cut(after, `"`)
		return scope
	}
	if a, b := scopeOf(s1), scopeOf(s2); a == "" || a != b {
		t.Errorf("the scopes are %q and %q, want the same: the order of the servers makes no difference", a, b)
	}

	first := s1.POST("k", "ttl=4s", "note=nightly").Finally(t, 201, "held")
	refused := s2.POST("k").Finally(t, 409, "held")
	if refused.JSON.Holder == nil || refused.JSON.Holder.Pod != "shop/pod-1" || refused.JSON.Holder.Note != "nightly" {
		t.Errorf("told of %+v", refused.JSON.Holder)
	}
	waiter := s2.enter(m[0], "k", "wait=20s")
	s1.awaitRenewals("k", 3, 10*time.Second)
	s1.giveBack("k", first).Finally(t, 204, "")
	second := (<-waiter).Finally(t, 201, "held")
	wantFenceAbove(t, second, first)
	s2.giveBack("k", second).Finally(t, 204, "")
	eventually(t, 5*time.Second, "it is free everywhere", func() bool { return m.with("k") == 0 })
}

func TestAMinorityThatIsGoneIsToldAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	s1, s2 := m.on(t), m.on(t)
	h := s1.POST("k", "ttl=4s").Finally(t, 201, "held")
	dead := m[1].Addr()
	m[1].Kill()
	other := s2.POST("other").Want(t, 201, "held")
	s2.POST("k").Finally(t, 409, "held")
	s1.awaitRenewals("k", 3, 10*time.Second)
	s2.giveBack("other", other).Finally(t, 204, "")

	status, text := s1.Ready()
	if status != 200 || !strings.Contains(text, "node "+dead+": cannot be used: unavailable") {
		t.Errorf("/readyz is %d %s, want ready, and the node that is down", status, text)
	}
	s1.AwaitLog("a node of the quorum does not answer")
	if s1.Metric(`locksidecar_store_up`) != 1 || s1.Metric(`locksidecar_store_node_up{node="`+dead+`"}`) != 0 ||
		s1.Metric(`locksidecar_store_node_up{node="`+m[0].Addr()+`"}`) != 1 {
		t.Error("the metrics do not tell which node is down")
	}
	if page := s1.Request("GET", "/"); !strings.Contains(page.Body, "node "+dead) || !strings.Contains(page.Body, "redlock ") {
		t.Errorf("the status page tells nothing of it: %s", page.Body)
	}

	m[1].Restart()
	eventually(t, 10*time.Second, "it is told that all is well", func() bool {
		_, text := s1.Ready()
		return !strings.Contains(text, "node "+dead+": cannot")
	})
	eventually(t, 10*time.Second, "the lock was put back", func() bool { return m.with("k") == 3 })
	s1.giveBack("k", h).Finally(t, 204, "")
	eventually(t, 10*time.Second, "it is free everywhere", func() bool { return m.with("k") == 0 })
}

func TestWithoutAMajorityNobodyIsGrantedALock(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	s1, s2 := m.on(t), m.on(t)
	s1.POST("k", "ttl=4s").Finally(t, 201, "held")
	m[0].Kill()
	m[2].Kill()
	wantInTime(t, s2.awaitRefusal("other", "no_quorum"), storeTimeout)
	s1.awaitState("k", 6*time.Second, 200, "at_risk")
	s1.awaitLost("k", 6*time.Second, locker.CauseExpired)
	if status, text := s1.Ready(); status != 503 || !strings.Contains(text, "no_quorum") {
		t.Errorf("/readyz is %d %s", status, text)
	}
	if up := s1.Metric("locksidecar_store_up"); up != 0 {
		t.Errorf("locksidecar_store_up is %v", up)
	}
	eventually(t, 10*time.Second, "nothing is left of what was refused", func() bool { return m.with("other") == 0 })
}

// At the end all is given back at every server, not only at a majority.
func TestAtShutdownALockIsGivenBackAtEveryServer(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 5)
	p := m.on(t)
	const locks = 50
	for i := range locks {
		p.POST(fmt.Sprint("k", i)).Finally(t, 201, "held")
	}
	p.Signal(syscall.SIGTERM)
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.Log(), `"dropped":50`) {
		t.Errorf("the last line does not say that %d locks were dropped", locks)
	}
	for _, s := range m { // what was sent to one that is slow is carried out later
		eventually(t, 5*time.Second, "no lock is left at "+s.Addr(), func() bool { return len(s.Keys("lock:k*")) == 0 })
	}
}

func TestALockOfAMajorityIsBrokenAndNobodyHasItBeforeItsLeaseCouldEnd(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	holder, other := m.on(t, "HOLDER=shop/pod-1"), m.on(t)
	direct := commander{t, m.env()}
	direct.run("break", "k", "--yes").want(t, exitNotAcquired, "free", "nobody holds it")
	granted := holder.POST("k", "ttl=3s").Finally(t, 201, "held")
	m[2].Kill()
	direct.run("break", "k", "--yes").want(t, 0, "broken", "shop/pod-1")
	next := other.POST("k", "wait=20s").Finally(t, 201, "held")
	if next.Got.Milliseconds() < granted.JSON.ValidUntilMS {
		t.Errorf("it was granted %d ms before the lease that it was taken from had ended", granted.JSON.ValidUntilMS-next.Got.Milliseconds())
	}
	wantFenceAbove(t, next, granted)
	holder.awaitLost("k", 5*time.Second, "taken")
	m[1].Kill()
	direct.run("break", "k", "--yes").want(t, exitUnavailable)
}

// Whoever names a server twice believes that three decide, and two do.
func TestAServerThatIsNamedTwiceIsWarnedOf(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 2)
	_, port, _ := strings.Cut(m[0].Addr(), ":")
	p := startSidecar(t, "REDIS_MODE=redlock", "REDIS_ADDRS="+m[0].Addr()+","+m[1].Addr()+",localhost:"+port)
	p.AwaitLog(`"check":"same_server"`)
	if p.Metric(`locksidecar_warnings{check="same_server"}`) != 1 {
		t.Error("the metric does not warn")
	}
	if _, text := p.Ready(); !strings.Contains(text, "it is the same server as "+m[0].Addr()) {
		t.Errorf("/readyz: %s", text)
	}
}

// apart is sidecars of which each reaches all servers through proxies of its
// own, and one server not at all.
type apart struct {
	sidecars []*proc
	proxies  [][]*faultproxy.Proxy // of each sidecar, to each server
}

func (m majority) apart(t testing.TB, sidecars int, env ...string) *apart {
	c := &apart{}
	for range sidecars {
		var proxies []*faultproxy.Proxy
		var addrs []string
		for _, server := range m {
			proxy := faultproxy.Start(t, "tcp", server.Addr())
			proxies, addrs = append(proxies, proxy), append(addrs, proxy.Addr())
		}
		c.proxies = append(c.proxies, proxies)
		c.sidecars = append(c.sidecars, startSidecar(t, m.env(append([]string{"REDIS_ADDRS=" + strings.Join(addrs, ",")}, env...)...)...))
	}
	return c
}

// cut cuts each sidecar from another server, which turns with the round: some
// hang, and some are refused.
func (c *apart) cut(round int) {
	for i, proxies := range c.proxies {
		for j, proxy := range proxies {
			how := faultproxy.ConnectPass
			if (i+round)%len(proxies) == j {
				how = []faultproxy.Connect{faultproxy.ConnectReset, faultproxy.ConnectBlackHole}[round%2]
			}
			if how == faultproxy.ConnectPass {
				proxy.SetConnect(nil)
				continue
			}
			proxy.SetConnect(func(int) faultproxy.Connect { return how })
			proxy.Cut()
		}
	}
}

// Nobody sees the same servers as another, and they still exclude each other:
// the record finds two holders if they do not.
func TestSidecarsThatSeeDifferentServersExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			m := startMajority(t, n)
			c := m.apart(t, 3, "STORE_TIMEOUT=330ms")
			for i := range c.sidecars {
				c.sidecars[i].awaitReady()
			}
			var granted [3]atomic.Int64
			stop := make(chan struct{})
			var working sync.WaitGroup
			for i, p := range c.sidecars {
				for j := range 2 {
					working.Go(func() {
						for k := 0; ; k++ {
							select {
							case <-stop:
								return
							default:
							}
							key := fmt.Sprint("k", (j+k)%2)
							a := p.POST(key, "ttl=2s", "wait=5s", fmt.Sprint("owner=", j))
							if a.Status == http.StatusCreated {
								granted[i].Add(1)
								p.GET(key, fmt.Sprint("fencing_token=", a.JSON.Fence))
								p.giveBack(key, a)
							}
						}
					})
				}
			}
			for round := range 6 {
				c.cut(round)
				before := [3]int64{granted[0].Load(), granted[1].Load(), granted[2].Load()}
				eventually(t, 30*time.Second, fmt.Sprintf("round %d: each sidecar gets a lock", round), func() bool {
					return granted[0].Load() > before[0] && granted[1].Load() > before[1] && granted[2].Load() > before[2]
				})
			}
			close(stop)
			working.Wait()
			t.Logf("granted: %d, %d, %d", granted[0].Load(), granted[1].Load(), granted[2].Load())
			for _, p := range c.sidecars {
				p.Request(http.MethodDelete, "/locks", "all=true")
			}
			for _, proxies := range c.proxies {
				for _, proxy := range proxies {
					proxy.SetConnect(nil)
				}
			}
			eventually(t, 10*time.Second, "nothing is left anywhere", func() bool { return m.with("k0")+m.with("k1") == 0 })
		})
	}
}

// Who waits is served, whoever else does and whatever becomes of a minority; in
// which order is not promised.
func TestWaitersOfAMajorityAreAllServed(t *testing.T) {
	t.Parallel()
	const waiters, turns = 6, 20 // of each sidecar, and of each waiter
	m := startMajority(t, 3)
	sidecars := []*proc{m.on(t), m.on(t), m.on(t)}
	began := time.Now()
	var served atomic.Int64
	var waiting sync.WaitGroup
	for _, p := range sidecars {
		for i := range waiters {
			waiting.Go(func() {
				for range turns {
					a := p.POST("k", "ttl=5s", "wait=1m", fmt.Sprint("owner=w", i)).settled()
					if a.Status != http.StatusCreated {
						t.Errorf("a waiter got %v", a)
						return
					}
					served.Add(1)
					p.giveBack("k", a)
				}
			})
		}
	}
	eventually(t, time.Minute, "some are served", func() bool { return served.Load() > 60 })
	m[1].Kill()
	waiting.Wait()
	all := int64(len(sidecars) * waiters * turns)
	t.Logf("%d grants in %v", served.Load(), time.Since(began).Round(time.Millisecond))
	if n := served.Load(); n != all {
		t.Errorf("%d of %d were served", n, all)
	}
	eventually(t, 10*time.Second, "nobody is in line", func() bool { return places(m[0], "k")+places(m[2], "k") == 0 })
}

// With a minority that is frozen, or comes and goes, a sidecar answers within
// the server's time and what a healthy one takes.
func TestAFrozenMinorityIsWaitedForByNobody(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 5)
	p := m.on(t)
	p.POST("held", "ttl=4s").Finally(t, 201, "held")
	m[1].Stop()
	m[4].Stop()
	const nodeTimeout = storeTimeout / 2
	late := 0
	for i := range 50 {
		key := fmt.Sprint("k", i)
		a := p.POST(key)
		if a.Status != http.StatusCreated || a.Took() > nodeTimeout+answerBound {
			late++ // of the three that are left, all must answer in time
			t.Logf("%v after %v", a, a.Took())
		}
		if a.Status == http.StatusCreated {
			p.giveBack(key, a)
		}
	}
	if late > 5 {
		t.Errorf("%d of 50 answers came later than within %v", late, nodeTimeout+answerBound)
	}
	p.awaitRenewals("held", 3, 10*time.Second)
	m[1].Cont()
	m[4].Cont()
	for i := range 50 {
		key := fmt.Sprint("k", i)
		eventually(t, 10*time.Second, "nothing is left of "+key, func() bool { return m.with(key) == 0 })
	}
	p.GET("held").Want(t, 200, "held")
}

// The end is bounded though a server does not answer; what that has is given
// back at the others, and ends there by its TTL.
func TestShutdownIsBoundedWhenAMinorityDoesNotAnswer(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	p := m.on(t)
	for i := range 20 {
		p.POST(fmt.Sprint("k", i), "ttl=10s").Finally(t, 201, "held")
	}
	m[2].Stop()
	p.Signal(syscall.SIGTERM)
	began := time.Now()
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 2*time.Second+shutdownSlack {
		t.Errorf("the process took %v to end", took)
	}
	if !strings.Contains(p.Log(), `"dropped":20`) {
		t.Error("the last line does not say that all were dropped: a majority has confirmed it")
	}
	m[2].Cont()
	if left := m.with("k0"); left > 1 {
		t.Errorf("%d servers still have a lock", left)
	}
}

// A sidecar that was killed takes its leases up again, from a majority too.
func TestAKilledSidecarOnAMajorityTakesItsLeasesUpAgain(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	env := m.env("STATE_DIR=" + t.TempDir())
	first := launch{Env: env}.serve(t)
	first.awaitReady()
	h := first.POST("k", "ttl=10s", "owner=w").Finally(t, 201, "held")
	first.Kill()
	m[0].Kill() // meanwhile
	second := launch{Env: env}.serve(t)
	second.record.succeeds(second, first)
	second.awaitState("k", 5*time.Second, 200, "held")
	a := second.GET("k", fmt.Sprint("fencing_token=", h.JSON.Fence)).Want(t, 200, "held")
	second.giveBack("k", a).Finally(t, 204, "")
}

func TestACommandHoldsALockOfAMajorityWithoutASidecar(t *testing.T) {
	t.Parallel()
	m := startMajority(t, 3)
	m[1].Kill()
	p := m.on(t)
	direct := commander{t, m.env()}
	direct.run("exec", "--direct", "k", "--", "sh", "-c", `test -n "$LOCK_FENCING_TOKEN"`).want(t, 0)
	held := p.POST("k").Finally(t, 201, "held")
	direct.run("exec", "--direct", "-n", "k", "--", "true").want(t, exitNotAcquired)
	p.giveBack("k", held).Finally(t, 204, "")
}
