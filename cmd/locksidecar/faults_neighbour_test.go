package main

import (
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

var slackBucket = regexp.MustCompile(`locksidecar_renewal_slack_seconds_bucket\{le="([0-9.]+)"\} ([1-9]\d*)`)

// leastSlack returns a bound, of those that the metric has, below which the
// shortest validity left at a renewal was.
func (p *proc) leastSlack() float64 {
	p.t.Helper()
	least := math.Inf(1)
	for _, match := range slackBucket.FindAllStringSubmatch(p.Metrics(), -1) {
		bound, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			p.t.Fatal(err)
		}
		least = min(least, bound)
	}
	return least
}

// keepBusy runs busy loops, twice as many as there are processors, until the test ends.
func keepBusy(t *testing.T) {
	for range 2 * runtime.NumCPU() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		dieWithParent(busy)
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	}
}

func TestANoisyNeighbourCostsNoLock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	const locks = 20
	for i := range locks {
		p.POST(fmt.Sprint("k", i), "ttl=5s").Finally(t, 201, "held")
	}
	keepBusy(t)
	for i := range locks {
		eventually(t, time.Minute, "it is renewed again and again", func() bool {
			return p.GET(fmt.Sprint("k", i)).Want(t, 200, "").JSON.Renewals >= 4
		})
	}
	t.Logf("the shortest validity left at a renewal, of a lease of 5s, was below %v s", p.leastSlack())
}
