package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// It runs alone, since it measures.
func TestTwoThousandBoundLocksFitInto64MiBAndEndAtOnce(t *testing.T) {
	const n = 2000
	r := redistest.Start(t)
	holder, p := on(t, r, "LOG_LEVEL=info"), launch{Env: []string{"REDIS_ADDRS=" + r.Addr(), "LOG_LEVEL=info", "SHUTDOWN_GRACE=100ms"},
		Wrap: []string{"sh", "-c", "exec " + plainBinary(t)}}.serve(t)
	holder.takeMany(n, "ttl=60s")
	memory := func() float64 { return p.Metric("process_resident_memory_bytes") }
	least, goroutines := memory(), p.Metric("go_goroutines")
	var all []*follower
	for i := range n {
		all = append(all, p.bind(fmt.Sprint("k", i), "ttl=120s", "wait=60s"))
		if i%100 != 99 {
			continue
		}
		eventually(t, 30*time.Second, fmt.Sprintf("%d callers wait", i+1), func() bool {
			for j, f := range all[i-99:] { // a busy machine's Redis may be slow
				if f.over() {
					all[i-99+j] = p.bind(f.key, "ttl=120s", "wait=60s")
				}
			}
			return p.waiting() == i+1
		})
	}
	waiting := memory()
	began := locker.BootTime()
	holder.Request(http.MethodDelete, "/locks", "all=true").Want(t, http.StatusOK, "")
	for i, f := range all {
		_, err := f.awaitErr("held", 30*time.Second)
		for tries := 0; err != nil && tries < 20; tries++ { // as above
			all[i] = p.bind(f.key, "ttl=120s", "wait=30s")
			_, err = all[i].awaitErr("held", 30*time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d locks were handed over in %v", n, locker.BootTime().Sub(began).Round(time.Millisecond))
	bound := memory()
	var more float64
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if more = p.Metric("go_goroutines") - goroutines; more <= 100 {
			break
		}
	}
	t.Logf("resident: %.1f MiB; with %d waiters %.1f; bound %.1f; %v goroutines more", least/(1<<20), n, waiting/(1<<20), bound/(1<<20), more)
	if most := max(waiting, bound); most > 64<<20 {
		t.Errorf("%.1f MiB are resident", most/(1<<20))
	}
	if more > 100 {
		t.Errorf("%v goroutines more than without streams", more)
	}
	for _, f := range all {
		if kinds := f.heard(); kinds[len(kinds)-1].kind == "lost" {
			t.Fatalf("%s was lost", f.key)
		}
	}

	began = locker.BootTime()
	for _, f := range all[:n/2] {
		f.close()
	}
	eventually(t, 10*time.Second, "half of them are free", func() bool { return len(r.Keys("lock:k*")) == n/2 })
	t.Logf("%d connections were closed and their locks free within %v", n/2, locker.BootTime().Sub(began).Round(time.Millisecond))

	began = locker.BootTime()
	p.Signal(syscall.SIGTERM)
	var last locker.Instant
	for _, f := range all[n/2:] {
		lost := f.await("lost", 10*time.Second)
		last = max(last, lost.at)
		if lost.JSON.Cause != string(locker.CauseShutdown) {
			t.Fatalf("%s: %s", f.key, lost.Body)
		}
	}
	if code := p.WaitExit(2*time.Second + shutdownSlack); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("SIGTERM: the last was told after %v, the exit came after %v", last.Sub(began).Round(time.Millisecond), locker.BootTime().Sub(began).Round(time.Millisecond))
	if dropped, _, _, _ := p.stopped(); dropped != n/2 {
		t.Errorf("%d were dropped", dropped)
	}
	if left := len(r.Keys("lock:k*")); left != 0 {
		t.Errorf("%d are left", left)
	}
}
