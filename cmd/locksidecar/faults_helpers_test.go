package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/redis"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// The tests of faults run the real binary against real servers. They are few
// seconds each, mostly of waiting, and run side by side. How they map to the
// faults that must be survived is told in docs/guarantees.md.

const (
	storeTimeout = 300 * time.Millisecond // the setting's default

	// answerBound is how much later than the store's timeout no answer comes.
	answerBound = 250 * time.Millisecond

	// unevenness is what machines that run many tests add to any bound: a
	// process may stand still for so long.
	unevenness = 2 * time.Second

	// atOnce is how long nothing takes that nothing holds up, but for an
	// unevenness: it shows only where there is more evidence.
	atOnce = 500 * time.Millisecond
)

// on starts a sidecar on the server.
func on(t testing.TB, r *redistest.Server, env ...string) *proc {
	t.Helper()
	return startSidecar(t, append([]string{"REDIS_ADDRS=" + r.Addr()}, env...)...)
}

// through starts a sidecar that reaches the server only through a proxy of its
// own. The server and the proxy know the scripts already, so that each call
// is one EVALSHA.
func through(t testing.TB, r *redistest.Server, env ...string) (*proc, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.Start(t, "tcp", r.Addr())
	for _, text := range redis.Scripts() {
		proxy.LearnScript(text)
		r.Do("SCRIPT", "LOAD", text)
	}
	return startSidecar(t, append([]string{"REDIS_ADDRS=" + proxy.Addr()}, env...)...), proxy
}

// runs tells whether the command runs the script of that name, such as
// acquire, for the key; an empty key stands for all.
func runs(c faultproxy.Command, script, key string) bool {
	return strings.HasPrefix(c.Script, "-- "+script+":") && (key == "" || c.Mentions("lock:"+key))
}

// first returns a rule for the first n commands that run the script for the
// key; all else passes.
func first(n int64, script, key string, action faultproxy.Action) func(faultproxy.Command) faultproxy.Action {
	var left atomic.Int64
	left.Store(n)
	return func(c faultproxy.Command) faultproxy.Action {
		if runs(c, script, key) && left.Add(-1) >= 0 {
			return action
		}
		return faultproxy.Action{}
	}
}

// always returns a rule for every command that runs the script for the key.
func always(script, key string, action faultproxy.Action) func(faultproxy.Command) faultproxy.Action {
	return func(c faultproxy.Command) faultproxy.Action {
		if runs(c, script, key) {
			return action
		}
		return faultproxy.Action{}
	}
}

// awaitState returns the first GET that has this status and word.
func (p *proc) awaitState(key string, within time.Duration, status int, word string) (a answer) {
	p.t.Helper()
	var last answer
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the last GET was %v", last)
		}
	}()
	eventually(p.t, within, key+" is "+word, func() bool {
		last = p.GET(key)
		return last.Is(status, word)
	})
	return last
}

// awaitLost returns the answer that tells of the loss, which must have come
// within the time given, for the cause.
func (p *proc) awaitLost(key string, within time.Duration, cause locker.Cause) answer {
	p.t.Helper()
	a := p.awaitState(key, within, 410, "lost")
	if a.JSON.Cause != string(cause) {
		p.t.Fatalf("%s was lost by %q, want %q", key, a.JSON.Cause, cause)
	}
	return a
}

// awaitRenewals returns once the lock has been renewed n times since the call.
func (p *proc) awaitRenewals(key string, n int, within time.Duration) {
	p.t.Helper()
	before := p.GET(key).Want(p.t, 200, "").JSON.Renewals
	eventually(p.t, within, key+" is renewed", func() bool {
		return p.GET(key).Want(p.t, 200, "").JSON.Renewals >= before+n
	})
}

// awaitFree returns once no lock is at the key.
func awaitFree(t testing.TB, r *redistest.Server, key string, within time.Duration) {
	t.Helper()
	eventually(t, within, "nothing is left at "+key, func() bool { return r.Do("EXISTS", "lock:"+key) == int64(0) })
}

// wantValue fails the test unless that value is at the key. The values may be
// tokens and are not shown.
func wantValue(t testing.TB, r *redistest.Server, key, want string) {
	t.Helper()
	if got, _ := r.Get("lock:" + key); got != want {
		t.Fatalf("the value at %s has changed", key)
	}
}

// wantInTime fails the test if an answer took longer than the API promises, save
// for unevenness.
func wantInTime(t testing.TB, a answer, timeout time.Duration) {
	t.Helper()
	if a.Took() > timeout+answerBound+unevenness {
		t.Errorf("the answer %v took %v, want at most %v", a, a.Took(), timeout+answerBound)
	}
}

// wantMostInTime fails the test if more than half of the answers took longer than
// the API promises: so often the machine is not to blame.
func wantMostInTime(t testing.TB, answers []answer, timeout time.Duration) {
	t.Helper()
	late := 0
	for _, a := range answers {
		wantInTime(t, a, timeout)
		if a.Took() > timeout+answerBound {
			late++
		}
	}
	if late > len(answers)/2 {
		t.Errorf("%d of %d answers took longer than %v: %v", late, len(answers), timeout+answerBound, answers)
	}
}

// wantFenceAbove fails the test unless the answer's fencing token is greater.
func wantFenceAbove(t testing.TB, a, earlier answer) {
	t.Helper()
	if a.JSON.Fence <= earlier.JSON.Fence {
		t.Errorf("the fencing token %d does not rise above %d", a.JSON.Fence, earlier.JSON.Fence)
	}
}
