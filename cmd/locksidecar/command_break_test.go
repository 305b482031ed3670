package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestBreakTakesALockAwayAndNobodyHasItBeforeItsLeaseCouldEnd(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	holder, other := on(t, r, "HOLDER=shop/pod-1"), on(t, r)
	direct := commander{t, []string{"REDIS_ADDRS=" + r.Addr()}}

	direct.run("break", "k", "--yes").want(t, exitNotAcquired, "free", "nobody holds it")
	granted := holder.POST("k", "ttl=3s", "note=nightly").Finally(t, 201, "held")
	waiter := other.enter(r, "k", "wait=20s")

	direct.run("break", "k").want(t, exitUsage, "--yes")
	holder.GET("k").Want(t, 200, "held")
	told := fields(t, direct.run("break", "k", "--yes", "-o", "json").want(t, 0).stdout)
	left := time.Duration(told["expires_in_ms"].(float64)) * time.Millisecond
	if told["state"] != "broken" || told["holder"].(map[string]any)["pod"] != "shop/pod-1" || told["holder"].(map[string]any)["note"] != "nightly" ||
		told["queue_length"] != 1.0 || left <= 0 || left > 3*time.Second {
		t.Errorf("%v", told)
	}
	if value, _ := r.Get("lock:k"); value != "ls1/shop/pod-1/-broken" {
		t.Errorf("at the key is %q", value)
	}

	next := (<-waiter).Want(t, 201, "held")
	if next.Got.Milliseconds() < granted.JSON.ValidUntilMS {
		t.Errorf("it was granted %d ms before the lease that it was taken from had ended", granted.JSON.ValidUntilMS-next.Got.Milliseconds())
	}
	wantFenceAbove(t, next, granted)
	holder.awaitLost("k", 5*time.Second, "taken")
}

func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("SKIPPED: script is missing; apt-get install bsdutils")
	}
	r := redistest.Start(t)
	p := on(t, r, "HOLDER=shop/pod-1")
	direct := commander{t, []string{"REDIS_ADDRS=" + r.Addr()}}
	answer := func(text string) result {
		cmd := direct.prepare(exec.Command("script", "-qec", "locksidecar break k", "/dev/null"))
		cmd.Stdin = strings.NewReader(text)
		return direct.finish(cmd)
	}
	p.POST("k").Finally(t, 201, "held")
	for _, no := range []string{"n\n", "\n", "yesterday\n"} {
		answer(no).want(t, exitFailure, "shop/pod-1", "[y/N]", "nothing was changed")
	}
	p.GET("k").Want(t, 200, "held")
	answer("y\n").want(t, 0, "shop/pod-1", "broken")
	if value, _ := r.Get("lock:k"); value != "ls1/shop/pod-1/-broken" {
		t.Errorf("at the key is %q", value)
	}
}

func TestBreakLeavesAloneWhatIsNoLockOrCannotBeAsked(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	direct := commander{t, []string{"REDIS_ADDRS=" + r.Addr()}}
	r.Do("RPUSH", "lock:list", "x")
	r.Do("SET", "lock:forever", "x")
	for _, key := range []string{"list", "forever"} {
		direct.run("break", key, "--yes").want(t, exitUnavailable, "not a lock")
	}
	if value, _ := r.Get("lock:forever"); value != "x" || r.PTTL("lock:forever") != -time.Millisecond {
		t.Errorf("it was changed to %q for %v", value, r.PTTL("lock:forever"))
	}
	direct.run("break", "a//b", "--yes").want(t, exitUsage, "empty segment")

	r.Do("SET", "lock:theirs", "somebody's secret", "PX", "60000")
	if told := direct.run("break", "theirs", "--yes").want(t, 0, "broken"); strings.Contains(told.String(), "secret") {
		t.Error("a token is told")
	}
	if value, _ := r.Get("lock:theirs"); value != "ls1//-broken" || r.PTTL("lock:theirs") < 30*time.Second {
		t.Errorf("at the key is %q for %v", value, r.PTTL("lock:theirs"))
	}

	left := r.PTTL("lock:theirs")
	direct.run("break", "theirs", "--yes").want(t, 0, "broken") // again does no harm
	if again := r.PTTL("lock:theirs"); again > left {
		t.Errorf("breaking again made %v of %v", again, left)
	}

	commander{t, nil}.run("break", "k", "--yes").want(t, exitSettings, "LOCKSIDECAR_REDIS_ADDRS is not set")
	commander{t, []string{"REDIS_MODE=memory"}}.run("break", "k", "--yes").want(t, exitUnavailable, "memory")
	r.Kill()
	direct.run("break", "k", "--yes").want(t, exitUnavailable, "store")
}

func TestALostReplyToABreakIsAskedForAgain(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	holder := on(t, r)
	_, proxy := through(t, r)
	holder.POST("k", "ttl=1m").Finally(t, 201, "held")
	proxy.SetRule(first(1, "break", "k", faultproxy.Action{LoseReply: true}))
	commander{t, []string{"REDIS_ADDRS=" + proxy.Addr()}}.run("break", "k", "--yes").want(t, 0, "broken")
	holder.POST("k2", "ttl=1m").Finally(t, 201, "held")
	proxy.SetRule(always("break", "k2", faultproxy.Action{LoseReply: true}))
	commander{t, []string{"REDIS_ADDRS=" + proxy.Addr()}}.run("break", "k2", "--yes").want(t, exitUnavailable, "not known whether")
}
