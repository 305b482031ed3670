package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

func TestAGrantWhoseReplyIsLostIsRecognised(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	slow := 0
	for i := range 20 {
		key := fmt.Sprint("k", i)
		proxy.SetRule(first(1, "acquire", key, faultproxy.Action{LoseReply: true}))
		a := p.POST(key, "ttl=60s")
		if a.Is(503, "acquire_unresolved") { // there was no time to ask again
			if slow++; slow > 3 {
				t.Fatalf("the %dth grant of which that is not known: %v", slow, a)
			}
			continue
		}
		a.Want(t, 201, "held")
		if got := r.Hash("lock:#grant:{lock:" + key + "}")["fence"]; got != fmt.Sprint(a.JSON.Fence) {
			t.Errorf("the fencing token %d was told, and %s is in Redis", a.JSON.Fence, got)
		}
		p.DELETE(key).Finally(t, 204, "")
		awaitFree(t, r, key, 5*time.Second)
	}
}

func TestAGrantWhoseRepliesAreAllLostIsUndone(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	proxy.SetRule(always("acquire", "k", faultproxy.Action{LoseReply: true}))
	a := p.POST("k", "ttl=60s").Want(t, 503, "acquire_unresolved")
	wantInTime(t, a, storeTimeout)
	awaitFree(t, r, "k", 5*time.Second)
	proxy.SetRule(nil)
	p.POST("k", "ttl=60s").Finally(t, 201, "held")
}

func TestAGrantWhoseReplyIsLateIsFreeForOthersSoon(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, proxy := through(t, r, "STORE_TIMEOUT=100ms")
	s2 := on(t, r)
	proxy.SetRule(always("acquire", "k", faultproxy.Action{ReplyDelay: 500 * time.Millisecond}))
	a := s1.POST("k", "ttl=30s").Want(t, 503, "acquire_unresolved")
	wantInTime(t, a, 100*time.Millisecond)
	proxy.SetRule(nil)
	eventually(t, time.Second+unevenness, "another gets the lock", func() bool {
		return s2.POST("k", "ttl=30s").Status == http.StatusCreated
	})
	s1.awaitState("k", 5*time.Second, 404, "not_held")
	s2.GET("k").Want(t, 200, "held")
}

func TestTheLeastCertainOutcomeOfAllAttemptsIsTold(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	p.POST("warm").Finally(t, 201, "held")
	var lost atomic.Bool
	proxy.SetConnect(func(int) faultproxy.Connect {
		if lost.Load() {
			return faultproxy.ConnectReset
		}
		return faultproxy.ConnectPass
	})
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		if runs(c, "acquire", "k") {
			lost.Store(true)
			return faultproxy.Action{LoseReply: true}
		}
		return faultproxy.Action{Reset: lost.Load()}
	})
	p.POST("k", "ttl=30s").Want(t, 503, "acquire_unresolved")
	lost.Store(false)
	proxy.SetRule(nil)
	awaitFree(t, r, "k", 10*time.Second)
}

func TestCommandsThatAreDeliveredTwiceGrantAndReleaseOnce(t *testing.T) {
	t.Parallel()
	for name, repeat := range map[string]faultproxy.Repeat{
		"on the same connection": faultproxy.RepeatInPlace,
		"on another connection":  faultproxy.RepeatElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			s1, twice := through(t, r)
			s2, once := through(t, r)
			var copies atomic.Int64
			twice.SetRule(func(c faultproxy.Command) faultproxy.Action {
				if c.Name != "EVALSHA" {
					return faultproxy.Action{}
				}
				copies.Add(1)
				return faultproxy.Action{Repeat: repeat}
			})
			executed := func() {
				t.Helper()
				eventually(t, 10*time.Second, "both have been executed", func() bool {
					return scriptCalls(t, r) == once.Counts()["EVALSHA"]+twice.Counts()["EVALSHA"]+int(copies.Load())
				})
			}
			var before answer
			for range 20 {
				a := s1.POST("k", "ttl=30s").Finally(t, 201, "held")
				executed()
				wantFenceAbove(t, a, before)
				if got := r.Hash("lock:#grant:{lock:k}")["fence"]; got != fmt.Sprint(a.JSON.Fence) {
					t.Errorf("the fencing token %d was told, and %s is in Redis", a.JSON.Fence, got)
				}
				// The reply to the one that came second says that the lock is gone.
				if a := s1.DELETE("k").settled(); !a.Is(204, "") && a.JSON.Cause != string(locker.CauseGone) {
					t.Fatalf("the answer is %v", a)
				}
				executed()
				before = s2.POST("k", "ttl=30s").Finally(t, 201, "held")
				wantFenceAbove(t, before, a)
				s1.POST("k").Finally(t, 409, "held")
				executed()
				s2.GET("k").Want(t, 200, "held")
				s2.DELETE("k").Finally(t, 204, "")
			}
		})
	}
}

func TestADuplicateThatComesAfterTheReleaseGrantsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, proxy := through(t, r)
	s2 := on(t, r)
	sent := make(map[string][]any)
	var mu sync.Mutex
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		mu.Lock()
		defer mu.Unlock()
		for _, script := range []string{"acquire", "release"} {
			if runs(c, script, "") {
				sent[script] = []any{c.Name}
				for _, arg := range c.Args {
					sent[script] = append(sent[script], arg)
				}
			}
		}
		return faultproxy.Action{}
	})
	duplicate := func(script string) string {
		mu.Lock()
		defer mu.Unlock()
		verdict, _ := r.Do(sent[script]...).([]any)[2].(string)
		return verdict
	}

	timeIsOver := func() bool {
		const argv = 3 // what precedes the arguments: EVALSHA, name, number of keys, the key; they count from 1
		now := r.Do("TIME").([]any)
		return number(t, now[0])*1_000_000+number(t, now[1]) > number(t, sent["acquire"][argv+6])
	}

	var key string
	for try := 0; ; try++ {
		key = fmt.Sprint("k", try)
		a := s1.POST(key, "ttl=30s").Finally(t, 201, "held")
		second := duplicate("acquire")
		fence := r.Hash("lock:#grant:{lock:" + key + "}")["fence"]
		s1.DELETE(key).Finally(t, 204, "")
		third := duplicate("acquire")
		if fence != fmt.Sprint(a.JSON.Fence) {
			t.Error("the second execution has made another fencing token")
		}
		if r.Do("EXISTS", "lock:"+key) != int64(0) {
			t.Error("the third execution, after the release, has taken the lock")
		}
		if timeIsOver() && try < 10 { // what came too late tells nothing
			continue
		}
		if second != "granted" || third != "spent" {
			t.Errorf("the second execution is answered %q, and after the release %q", second, third)
		}
		break
	}
	s2.POST(key, "ttl=30s").Finally(t, 201, "held")
	value, _ := r.Get("lock:" + key)
	if got := duplicate("release"); got != "taken" {
		t.Errorf("the second release is answered %q", got)
	}
	wantValue(t, r, key, value)
	s2.DELETE(key).Finally(t, 204, "")

	// Only the last grant's claim is known to be spent; an older one is
	// refused once its time, the store's timeout, is over.
	eventually(t, 10*time.Second, "the claim's time is over", timeIsOver)
	if got := duplicate("acquire"); got != "late" || r.Do("EXISTS", "lock:"+key) != int64(0) {
		t.Errorf("after its time the claim is answered %q", got)
	}
}

func number(t *testing.T, text any) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestALateReleaseDoesNotTouchTheNextHolder(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s1, proxy := through(t, r)
	s2 := on(t, r)
	s1.POST("k", "ttl=30s").Finally(t, 201, "held")
	hold := make(chan struct{})
	proxy.SetRule(first(1, "release", "k", faultproxy.Action{Hold: hold}))
	s1.DELETE("k").Want(t, 503, "release_unconfirmed")
	eventually(t, 10*time.Second, "the repeated release frees the lock", func() bool {
		return s2.POST("k", "ttl=30s").Status == http.StatusCreated
	})
	value, _ := r.Get("lock:k")
	calls := scriptCalls(t, r)
	close(hold)
	eventually(t, 10*time.Second, "the late release is executed", func() bool { return scriptCalls(t, r) > calls })
	wantValue(t, r, "k", value)
	s2.GET("k").Want(t, 200, "held")
}

// scriptCalls returns how many scripts the server has run by their names.
func scriptCalls(t *testing.T, r *redistest.Server) (n int) {
	t.Helper()
	info, _ := r.Do("INFO", "commandstats").(string)
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &n); err == nil {
			return n
		}
	}
	return 0
}

func TestAnAttemptIsNeverMoreThanOneCommand(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, proxy := through(t, r)
	attempts := func() (n int64) {
		for _, outcome := range []string{"yes", "no", "failed", "unknown"} {
			n += int64(p.Metric(fmt.Sprintf(`locksidecar_store_request_duration_seconds_count{op="acquire",outcome=%q}`, outcome)))
		}
		return n
	}
	for _, action := range []faultproxy.Action{
		{},
		{LoseReply: true},
		{Reset: true},
		{SwallowReply: true},
		{Replace: faultproxy.Garble},
		{Replace: func([]byte) []byte { return []byte("-LOADING Redis is loading the dataset in memory\r\n") }},
		{Replace: func([]byte) []byte { return []byte("-READONLY You can't write against a read only replica.\r\n") }},
		{Replace: func([]byte) []byte { return []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n") }},
	} {
		var commands atomic.Int64
		proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
			if runs(c, "acquire", "k") {
				commands.Add(1)
				return action
			}
			return faultproxy.Action{}
		})
		before := attempts()
		a := p.POST("k", "ttl=30s")
		// An attempt for which no connection can be had in time is no command.
		// One that the server has refused as not being its business was not
		// executed, so another server, or the same, may be asked again.
		if !a.Is(503, "store_unavailable") {
			eventually(t, 5*time.Second, fmt.Sprintf("%+v: as many attempts as commands, and the answer is %v", action, a), func() bool {
				return commands.Load() > 0 && commands.Load() <= attempts()-before
			})
		}
		proxy.SetRule(nil)
		switch {
		case a.Status == http.StatusCreated:
			p.DELETE("k").Finally(t, 204, "")
		case !a.Is(503, "acquire_unresolved"):
			r.Do("DEL", "lock:k") // the real reply was a grant
		}
		awaitFree(t, r, "k", 10*time.Second)
	}
}

func TestARepliesGarbageNeverReachesACaller(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func([]byte) []byte{
		"garbled":        faultproxy.Garble,
		"huge bulk":      faultproxy.HugeBulk,
		"push frame":     faultproxy.PushFirst,
		"truncated":      faultproxy.Truncate,
		"null":           func([]byte) []byte { return []byte("*-1\r\n") },
		"another's":      func([]byte) []byte { return []byte("*4\r\n$1\r\nx\r\n$1\r\n1\r\n$7\r\ngranted\r\n$1\r\n1\r\n") },
		"number":         func([]byte) []byte { return []byte(":1\r\n") },
		"endless nested": func(b []byte) []byte { return append([]byte("*1000000000\r\n"), b...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			p, proxy := through(t, r)
			h := p.POST("k", "ttl=6s").Finally(t, 201, "held")

			proxy.SetRule(first(1, "acquire", "once", faultproxy.Action{Replace: replace}))
			if once := p.POST("once", "ttl=30s"); once.Status == http.StatusCreated {
				p.DELETE("once").Finally(t, 204, "")
			} else {
				once.Want(t, 503, "acquire_unresolved") // it looked as if more of the reply would come
			}
			awaitFree(t, r, "once", 10*time.Second)

			proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
				if runs(c, "acquire", "always") || runs(c, "renew", "") {
					return faultproxy.Action{Replace: replace}
				}
				return faultproxy.Action{}
			})
			a := p.POST("always", "ttl=30s").Want(t, 503, "acquire_unresolved")
			wantInTime(t, a, storeTimeout)
			p.awaitState("k", 6*time.Second, 200, "at_risk")
			proxy.SetRule(nil)
			if back := p.awaitState("k", 6*time.Second, 200, "held"); back.JSON.Fence != h.JSON.Fence {
				t.Errorf("the lock is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
			}
			awaitFree(t, r, "always", 10*time.Second)
		})
	}
}

func TestNoAnswerIsThatOfAnotherRequest(t *testing.T) {
	r := redistest.Start(t)
	p, proxy := through(t, r)
	var n atomic.Int64
	proxy.SetRule(func(c faultproxy.Command) faultproxy.Action {
		switch i := n.Add(1); {
		case i%97 == 0:
			return faultproxy.Action{LoseReply: true}
		case i%89 == 0:
			return faultproxy.Action{SwallowReply: true}
		case i%5 == 0:
			return faultproxy.Action{ReplyDelay: time.Duration(i%20) * time.Millisecond}
		}
		return faultproxy.Action{}
	})
	const workers, rounds = 50, 14
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			for i := range rounds {
				key := fmt.Sprintf("k%d.%d", w, i)
				if i%7 == 3 {
					p.leaveEarly(key, time.Duration(w%8)*time.Millisecond)
					continue
				}
				a := p.POST(key, "ttl=20s", "note="+key)
				if a.Status != http.StatusCreated {
					if !a.Is(503, "") {
						t.Errorf("the answer for %s is %v", key, a)
					}
					continue
				}
				got := p.GET(key)
				if a.JSON.Note != key || got.JSON.Note != key || got.JSON.Fence != a.JSON.Fence {
					t.Errorf("the answers for %s are %v and %v", key, a, got)
				}
				if d := p.DELETE(key); !d.Is(204, "") && !d.Is(503, "release_unconfirmed") {
					t.Errorf("the release of %s is %v", key, d)
				}
			}
		})
	}
	working.Wait()
	proxy.SetRule(nil)
	// A caller who leaves may have got the answer to the last byte.
	p.Request(http.MethodDelete, "/locks", "all=true").Want(t, 200, "")
	eventually(t, 15*time.Second, "nothing is left", func() bool { return len(r.Keys("lock:k*")) == 0 })
}
