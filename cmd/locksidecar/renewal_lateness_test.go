package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// A third of the TTL after a renewal the next one is due. It runs alone, since it
// measures, and only for the figures.
func TestHowLateRenewalsAre(t *testing.T) {
	if !figures.Wanted() {
		t.Skip("it measures, and checks nothing that other tests do not: see make figures")
	}
	figures.Count(figures.RenewalLate, "", int(worstLateness(t).Microseconds()))
	keepBusy(t)
	figures.Count(figures.RenewalLateBusy, "", int(worstLateness(t).Microseconds()))
}

// worstLateness returns by how much the latest of some thousand renewals came after
// its time.
func worstLateness(t *testing.T) (worst time.Duration) {
	const (
		locks  = 300
		ttl    = 3 * time.Second
		rounds = 10
	)
	p, proxy := through(t, redistest.Start(t), "LOG_LEVEL=info")
	var (
		mu      sync.Mutex
		renewed = make(map[string]time.Time)
		times   int
	)
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		if !runs(c, "renew", "") {
			return faultproxy.Action{}
		}
		now := time.Now()
		n, _ := strconv.Atoi(c.Args[1]) // of keys
		mu.Lock()
		defer mu.Unlock()
		for _, key := range c.Args[2 : 2+n] {
			if !strings.HasPrefix(key, "lock:k") {
				continue // no lock: now and then the sidecar tries whether scripts work
			}
			if last, again := renewed[key]; again {
				times++
				worst = max(worst, now.Sub(last)-ttl/3)
			}
			renewed[key] = now
		}
		return faultproxy.Action{}
	})
	for i := range locks {
		p.POST(fmt.Sprint("k", i), "ttl="+ttl.String()).Finally(t, 201, "held")
	}
	eventually(t, time.Minute, "all are renewed again and again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return times >= rounds*locks
	})
	proxy.SetRule(nil)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d renewals, the latest %v after its time", times, worst)
	return worst
}
