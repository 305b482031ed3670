package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// curl runs the program that the documentation is written for.
func curl(args ...string) (string, error) {
	out, err := exec.Command("curl", append([]string{"-fsS", "--max-time", "20"}, args...)...).CombinedOutput()
	return string(out), err
}

// needCurl fails the test if there is none.
func needCurl(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: apt-get install curl")
	}
}

func TestEveryCurlThatHasReadItsAnswerKeepsItsLock(t *testing.T) {
	t.Parallel()
	needCurl(t)
	redis := redistest.Start(t)
	p := on(t, redis)
	const n, abreast = 200, 8
	var wg sync.WaitGroup
	for c := range abreast {
		wg.Go(func() {
			for i := c; i < n; i += abreast {
				if out, err := curl("--retry", "5", "-d", "ttl=60s", fmt.Sprintf("%s/locks/k%d", p.URL, i)); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
	wg.Wait()
	// A connection decides at its end, which is within lingerTime and settleTime.
	if given := p.lines("grant given back: the caller had gone before it was told"); len(given) > 0 {
		t.Errorf("%d were given back", len(given))
	}
	if held, keys := p.listed()["held"], len(redis.Keys("lock:k*")); held != n || keys != n {
		t.Errorf("%d are held and %d are in Redis, want %d", held, keys, n)
	}
}

func TestCurlsThatAreKilledBeforeTheirAnswerLeaveNoLock(t *testing.T) {
	t.Parallel()
	needCurl(t)
	redis := redistest.Start(t)
	p := on(t, redis)
	p.POST("warm").Finally(t, http.StatusCreated, "held")
	p.DELETE("warm").Finally(t, http.StatusNoContent, "")
	const n = 20
	redis.Stop()
	var curls []*exec.Cmd
	for i := range n {
		cmd := exec.Command("curl", "-sS", "-d", "ttl=60s", fmt.Sprintf("%s/locks/k%d", p.URL, i))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		curls = append(curls, cmd)
	}
	eventually(t, 10*time.Second, "requests are on their way", func() bool { return p.listed()["asking"]+p.listed()["releasing"] > 0 })
	for _, cmd := range curls {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
	redis.Cont()
	eventually(t, 2*time.Second+unevenness, "every lock is free", func() bool {
		return len(redis.Keys("lock:k*")) == 0 && len(p.listed()) == 0
	})
}

// leaveUnread asks for a lock and leaves after a while without having read the
// answer.
func (p *proc) leaveUnread(key string, after time.Duration, how func(*wire)) error {
	nc, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		return err
	}
	w := &wire{Conn: nc, t: p.t}
	defer w.Close()
	if _, err := w.Write([]byte(request(http.MethodPost, "/locks/"+key, "ttl=60s"))); err != nil {
		return err
	}
	time.Sleep(after)
	how(w)
	return nil
}

func TestCallersThatLeaveUnreadAtAnyMomentLeaveNoLock(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	ways := map[string]func(*wire){
		"reset": (*wire).reset,
		"close": func(w *wire) { _ = w.Close() },
	}
	var wg sync.WaitGroup
	for name, how := range ways {
		for c := range 4 {
			wg.Go(func() {
				for i := range 60 {
					if err := p.leaveUnread(fmt.Sprintf("k-%s-%d-%d", name, c, i), rand.N(3*time.Millisecond), how); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	eventually(t, 2*time.Second+unevenness, "every lock is free", func() bool {
		return len(redis.Keys("lock:k-*")) == 0
	})
}

func TestAHalfCloseBeforeTheAnswerIsLeaving(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	for i := range 20 {
		w := p.wire()
		w.send(request(http.MethodPost, fmt.Sprintf("/locks/k%d", i), "ttl=60s"))
		w.endSending()
		statuses, _ := w.rest()
		told := len(statuses) == 1 && statuses[0] == http.StatusCreated
		if !told {
			awaitFree(t, redis, fmt.Sprintf("k%d", i), 10*time.Second)
		}
	}
}

func TestAnAnswerThatIsNeverReadIsGivenBackWithItsConnection(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	w := p.wire()
	w.send(request(http.MethodPost, "/locks/k", "ttl=2s"))
	w.awaitUnread()
	eventually(t, 15*time.Second, "it is renewed, since it may still be read", func() bool {
		return p.Metric(`locksidecar_renewals_total{result="ok"}`) >= 4 // beyond one TTL
	})
	w.Close() // a kernel resets a connection with unread input
	awaitFree(t, redis, "k", 10*time.Second)
}

// A caller that asks and never reads fills the buffers of both kernels; then
// the process has to wait for it, for as long as its write deadline says.
func TestASlowReaderIsCutOffAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	p.takeMany(200, "ttl=60s")()
	held := p.POST("k", "ttl=3s").Finally(t, http.StatusCreated, "held")
	slow := p.wire()
	cut := make(chan error, 1)
	go func() {
		list := []byte(strings.Repeat(request(http.MethodGet, "/locks", ""), 50))
		for {
			if err := slow.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
				cut <- err
				return
			}
			if _, err := slow.Write(list); err != nil {
				cut <- err
				return
			}
		}
	}()
	var err error
	// Those who are held up by it would have to wait for its write deadline.
	eventually(t, 30*time.Second, "the connection is cut", func() bool {
		if a := p.GET("k").Want(t, http.StatusOK, ""); a.Took() > unevenness || a.JSON.Fence != held.JSON.Fence {
			t.Errorf("meanwhile another is answered in %v: %v", a.Took(), a)
		}
		select {
		case err = <-cut:
			return true
		default:
			return false
		}
	})
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the slow reader's connection ended with %v", err)
	}
	p.GET("k").Want(t, http.StatusOK, "")
}

func TestFiveThousandConnectionsHoldUpNoRenewalAndLeaveNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis, "LOG_LEVEL=info")
	held := p.POST("k", "ttl=6s").Finally(t, http.StatusCreated, "held")
	goroutines, files, memory := p.Metric("go_goroutines"), p.Metric("process_open_fds"), p.Metric("process_resident_memory_bytes")

	const idle, slow = 5000, 100
	connections := make([]net.Conn, 0, idle+slow)
	defer func() {
		for _, c := range connections {
			c.Close()
		}
	}()
	answer := make([]byte, 4096)
	for len(connections) < idle+slow {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
		if err != nil {
			t.Fatalf("connection %d: %v (see ulimit -n)", len(connections), err)
		}
		connections = append(connections, c)
		if len(connections) > idle {
			continue
		}
		if _, err := c.Write([]byte(request(http.MethodGet, "/drain", ""))); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 405 ") {
			t.Fatalf("connection %d: %q, %v", len(connections), answer[:n], err)
		}
	}
	var crawl sync.WaitGroup
	left := make(chan bool, slow)
	for _, c := range connections[idle:] {
		crawl.Go(func() { // a byte every now and then, for ever
			text := request(http.MethodPost, "/locks/slow", "") + strings.Repeat("X", 1000)
			for i := 0; ; i++ {
				if _, err := c.Write([]byte{text[min(i, 40)]}); err != nil {
					left <- true
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	eventually(t, 60*time.Second, "the slow ones are cut off", func() bool {
		if a := p.GET("k").Want(t, http.StatusOK, ""); a.JSON.Fence != held.JSON.Fence {
			t.Errorf("another grant: %v", a)
		}
		return len(left) == slow
	})
	crawl.Wait()
	// A renewal that arrives three seconds late leaves a second of six.
	if late := p.Metric(`locksidecar_renewal_slack_seconds_bucket{le="1"}`); late > 0 {
		t.Errorf("%v renewals were late", late)
	}
	if p.Metric(`locksidecar_renewal_slack_seconds_count`) == 0 {
		t.Error("there were no renewals")
	}
	if p.Metric("process_open_fds") < idle {
		t.Error("the connections are not there")
	}
	t.Logf("memory: %.0f MB, with %d connections %.0f MB", memory/1e6, idle, p.Metric("process_resident_memory_bytes")/1e6)
	for _, c := range connections {
		c.Close()
	}
	eventually(t, 20*time.Second, "goroutines and files are gone", func() bool {
		return p.Metric("go_goroutines") <= goroutines+10 && p.Metric("process_open_fds") <= files+5
	})
}
