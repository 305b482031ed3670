package metrics

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestWaitsAreTimedByTheirEndAndRefusalsAreNot(t *testing.T) {
	m := New(quiet())
	for _, result := range locker.AcquireResults {
		m.Acquired(result, 2*time.Second)
	}
	p := page(t, m)
	wantLine(t, p, `locksidecar_acquires_total{result="held"} 1`)
	for _, result := range []string{"granted", "wait_timeout", "caller_gone"} {
		wantLine(t, p, `locksidecar_acquire_wait_seconds_count{result="`+result+`"} 1`)
		wantLine(t, p, `locksidecar_acquire_wait_seconds_sum{result="`+result+`"} 2`)
	}
	if strings.Contains(p, `locksidecar_acquire_wait_seconds_count{result="held"}`) {
		t.Error("a refusal is timed")
	}
}

func TestEveryHoldIsTimedOnce(t *testing.T) {
	m := New(quiet())
	for _, result := range []locker.ReleaseResult{locker.ReleaseDone, locker.ReleaseUnconfirmed, locker.ReleaseDropped} {
		m.Released(result, 2*time.Second)
	}
	m.Released(locker.ReleaseGivenBack, time.Hour) // nobody was told of it
	m.Lost(locker.CauseGone, 5*time.Second)
	m.Released(locker.ReleaseNotOurs, time.Hour) // timed by its loss

	p := page(t, m)
	wantLine(t, p, "locksidecar_hold_seconds_count 4")
	wantLine(t, p, "locksidecar_hold_seconds_sum 11")
	wantLine(t, p, `locksidecar_locks_lost_total{cause="gone"} 1`)
	wantLine(t, p, `locksidecar_releases_total{result="given_back"} 1`)
}

func TestOnlyARenewalThatSucceedsLeavesASlack(t *testing.T) {
	m := New(quiet())
	m.Renewed(locker.RenewOK, 20*time.Second)
	m.Renewed(locker.RenewFailed, time.Second)
	m.Renewed(locker.RenewLost, 0)
	m.Verified(locker.RenewOK) // it extends nothing
	p := page(t, m)
	wantLine(t, p, "locksidecar_renewal_slack_seconds_count 1")
	wantLine(t, p, "locksidecar_renewal_slack_seconds_sum 20")
	wantLine(t, p, `locksidecar_renewals_total{result="ok"} 2`)
	wantLine(t, p, `locksidecar_renewals_total{result="failed"} 1`)
	wantLine(t, p, `locksidecar_renewals_total{result="lost"} 1`)
}

func TestWaitersAreCounted(t *testing.T) {
	m := New(quiet())
	m.WokenUp()
	m.Polled()
	m.Polled()
	m.HandedOver(time.Second)
	p := page(t, m)
	wantLine(t, p, "locksidecar_wakeups_total 1")
	wantLine(t, p, "locksidecar_polls_total 2")
	wantLine(t, p, "locksidecar_handover_seconds_sum 1")
}

func TestManyGoroutinesLoseNoCountAndAddNoSeries(t *testing.T) {
	m := New(quiet())
	seriesAtFirst, err := testutil.GatherAndCount(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	const goroutines, rounds = 8, 200
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range rounds {
				m.Acquired(locker.AcquireResults[i%len(locker.AcquireResults)], time.Millisecond)
				m.Released(locker.ReleaseDone, time.Second)
				m.Lost(locker.Causes[i%len(locker.Causes)], time.Second)
				m.Renewed(locker.RenewOK, time.Second)
				m.Orphan()
				m.ClockStep(time.Second)
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := m.registry.Gather(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()

	wantLine(t, page(t, m), "locksidecar_orphans_total 1600")
	wantLine(t, page(t, m), `locksidecar_releases_total{result="released"} 1600`)
	series, err := testutil.GatherAndCount(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	if series != seriesAtFirst {
		t.Errorf("%d series after use, %d at first", series, seriesAtFirst)
	}
}
