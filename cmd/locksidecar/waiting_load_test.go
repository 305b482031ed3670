package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// crowd is callers that wait, each on a connection of its own.
type crowd []*wire

// crowdAt has n callers wait at the process and returns once they do. key names
// the lock of each.
func crowdAt(p *proc, n int, form string, key func(i int) string) crowd {
	p.t.Helper()
	const portion = 25 // one whose first request does not reach the store in time does not wait
	before := p.waiting()
	var c crowd
	for i := range n {
		w := p.wire()
		w.send(request(http.MethodPost, "/locks/"+key(i), form))
		c = append(c, w)
		if len(c)%portion == 0 || len(c) == n {
			p.awaitWaiting(before + len(c))
		}
	}
	return c
}

// leave closes all connections.
func (c crowd) leave() {
	for _, w := range c {
		_ = w.Close()
	}
}

// It runs alone, since it measures.
func TestAHerdOnOneKeyCostsRedisTheSameForEachGrantAndStarvesNobody(t *testing.T) {
	const n = 500
	r := redistest.Start(t)
	holder, pods := on(t, r), []*proc{on(t, r, "LOG_LEVEL=info"), on(t, r, "LOG_LEVEL=info")}
	held := holder.POST("k", "ttl=60s").Finally(t, 201, "held")
	var herd crowd
	for i := range n { // by turns, so that most grants go to the other sidecar
		w := pods[i%len(pods)].wire()
		w.send(request(http.MethodPost, "/locks/k", "ttl=60s&wait=60s"))
		herd = append(herd, w)
		eventually(t, 10*time.Second, "the caller is in line", func() bool { return lastNumber(r, "k") == i+1 })
	}
	calls := commandsOf(t, r, "evalsha")
	began := time.Now()
	holder.giveBack("k", held).Finally(t, 204, "")

	var fences [n]locker.Fence
	served := make(chan time.Time, n)
	var serving sync.WaitGroup
	for i, w := range herd {
		serving.Go(func() {
			a, err := w.read()
			if err != nil || a.Status != 201 {
				t.Errorf("%v, %v", a, err)
				return
			}
			served <- time.Now()
			fences[i] = a.JSON.Fence
			// A release that is not confirmed yet is repeated.
			if a, err := w.exchange(request(http.MethodDelete, "/locks/k", "")); err != nil || a.Status != 204 && !a.Is(503, "release_unconfirmed") {
				t.Errorf("%v, %v", a, err)
			}
		})
	}
	serving.Wait()
	close(served)
	var longest time.Duration
	last, granted := began, 0
	for at := range served {
		longest, last, granted = max(longest, at.Sub(last)), at, granted+1
	}
	perGrant := float64(commandsOf(t, r, "evalsha")-calls) / n
	t.Logf("%d waiters were served in %v, %v at most between two; %.2f script calls for each", granted, last.Sub(began), longest, perGrant)
	if granted != n {
		t.Errorf("%d of %d were served", granted, n)
	}
	if !slices.IsSorted(fences[:]) {
		t.Error("they were not served in the order of their arrival")
	}
	if perGrant > 3 {
		t.Errorf("each grant cost %.2f script calls", perGrant)
	}
	if longest > pollBound {
		t.Errorf("for %v nobody was served", longest)
	}
	for _, p := range pods {
		p.awaitWaiting(0)
	}
}

// Those who wait for a key each are first in line and ask every second: the
// most that waiters can cost. It runs alone, since it measures.
func TestHundredsOfWaitersHoldUpNoRenewal(t *testing.T) {
	const held, waiters = 200, 500
	r := redistest.Start(t)
	holder, p := on(t, r, "LOG_LEVEL=info"), on(t, r, "LOG_LEVEL=info")
	holder.takeMany(waiters, "ttl=60s")
	mine := p.dialAll(4)
	for i := range held {
		if a, err := mine[i%len(mine)].take(fmt.Sprint("mine", i), "ttl=6s"); err != nil || a.Status != 201 {
			t.Fatal(a, err)
		}
	}
	herd := crowdAt(p, waiters, "wait=60s", func(i int) string { return fmt.Sprint("k", i) })
	eventually(t, 30*time.Second, "each lock is renewed twice", func() bool {
		return p.Metric(`locksidecar_renewals_total{result="ok"}`) >= 2*held
	})
	p.wantRenewedInTime(held)
	if n := p.Metric("locksidecar_polls_total"); n < waiters {
		t.Errorf("waiters have asked %v times, so they cost nothing", n)
	}
	herd.leave()
	p.awaitWaiting(0)
}

// dialAll opens connections that stay open.
func (p *proc) dialAll(n int) (all []*wire) {
	for range n {
		all = append(all, p.wire())
	}
	return all
}

// wantRenewedInTime fails the test if a renewal came so late that less than a
// second was left, or a lock stays at risk or is lost. The machine may have stood
// still for one of the times that all were renewed.
func (p *proc) wantRenewedInTime(held float64) {
	p.t.Helper()
	if n := p.Metric(`locksidecar_renewal_slack_seconds_bucket{le="1"}`); n != 0 {
		p.t.Errorf("%v renewals came late", n)
	}
	if n := p.Metric(`locksidecar_renewals_total{result="failed"}`); n > held {
		p.t.Errorf("%v renewals have failed", n)
	}
	eventually(p.t, 10*time.Second, "no lock is at risk", func() bool { return p.Metric(`locksidecar_locks_at_risk`) == 0 })
	if n := p.Metric(`locksidecar_locks_held`); n != held {
		p.t.Errorf("%v locks are held, want %v", n, held)
	}
}

// plainBinary builds the program as it is shipped: the race detector would take
// most of the memory.
func plainBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locksidecar")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// It runs alone, since it measures.
func TestTwoThousandWaitersAndThreeThousandIdleConnectionsFitInto64MiB(t *testing.T) {
	const held, waiters, idle = 200, 2000, 3000
	r := redistest.Start(t)
	holder, p := on(t, r), launch{Env: []string{"REDIS_ADDRS=" + r.Addr(), "LOG_LEVEL=info"}, Wrap: []string{"sh", "-c", "exec " + plainBinary(t)}}.serve(t)
	holder.takeMany(10, "ttl=60s")
	mine := p.dialAll(4)
	for i := range held {
		if a, err := mine[i%len(mine)].take(fmt.Sprint("mine", i), "ttl=5s"); err != nil || a.Status != 201 {
			t.Fatal(a, err)
		}
	}
	memory := func() float64 { return p.Metric("process_resident_memory_bytes") }
	least := memory()
	for i := range idle {
		w := p.wire()
		if i%3 > 0 { // the rest has never said anything
			if a := w.ask(http.MethodGet, "/locks/mine0", ""); a.Status != 200 {
				t.Fatal(a)
			}
		}
	}
	withIdle := memory()
	herd := crowdAt(p, waiters, "wait=60s", func(i int) string { return fmt.Sprint("k", i%10) })
	withAll := memory()
	before := p.Metric(`locksidecar_renewals_total{result="ok"}`)
	most := withAll
	eventually(t, 30*time.Second, "each lock is renewed thrice", func() bool {
		most = max(most, memory())
		return p.Metric(`locksidecar_renewals_total{result="ok"}`) >= before+3*held
	})
	p.wantRenewedInTime(held)
	t.Logf("resident: %.1f MiB; with %d idle connections %.1f, with %d waiters %.1f, then %.1f at most; %.1f KiB for each idle connection, %.1f for each waiter",
		least/(1<<20), idle, withIdle/(1<<20), waiters, withAll/(1<<20), most/(1<<20), (withIdle-least)/idle/1024, (withAll-withIdle)/waiters/1024)
	if most > 64<<20 {
		t.Errorf("%.1f MiB are resident", most/(1<<20))
	}
	herd.leave()
	p.awaitWaiting(0)
}
