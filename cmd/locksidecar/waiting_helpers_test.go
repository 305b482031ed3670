package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// pollBound is after how long a waiter has a free lock without being woken: it
// asks every second.
const pollBound = time.Second + storeTimeout + unevenness

// enter has a caller wait for the lock and returns once it has its number in
// line.
func (p *proc) enter(r *redistest.Server, key string, params ...string) <-chan answer {
	p.t.Helper()
	before := lastNumber(r, key)
	got := p.ask(key, params...)
	eventually(p.t, answerDeadline, "the caller is in line", func() bool {
		if lastNumber(r, key) > before {
			return true
		}
		select {
		case a := <-got: // one whose first request does not reach the store in time does not wait
			if !a.slow() {
				p.t.Fatalf("the caller is not in line: %v", a)
			}
			got = p.ask(key, params...)
		default:
		}
		return false
	})
	return got
}

// ask sends a POST and does not wait for the answer.
func (p *proc) ask(key string, params ...string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- p.POST(key, params...) }()
	return got
}

// lastNumber is the number of whoever came last into the line for the key.
func lastNumber(r *redistest.Server, key string) int {
	n, _ := strconv.Atoi(r.Hash("lock:#place:{lock:" + key + "}")["last"]) // there may be none
	return n
}

// places is how many processes are in line for the key.
func places(r *redistest.Server, key string) int64 {
	return r.Do("ZCARD", "lock:#queue:{lock:"+key+"}").(int64)
}

// waiting is how many callers wait.
func (p *proc) waiting() int {
	p.t.Helper()
	return int(p.Metric("locksidecar_waiters"))
}

// awaitWaiting returns once so many callers wait.
func (p *proc) awaitWaiting(n int) {
	p.t.Helper()
	eventually(p.t, 20*time.Second, fmt.Sprintf("%d callers wait", n), func() bool { return p.waiting() == n })
}

// giveBack releases the grant that an answer told, for whoever was granted it.
func (p *proc) giveBack(key string, granted answer) answer {
	return p.DELETE(key, fmt.Sprint("fencing_token=", granted.JSON.Fence))
}

// commandsOf returns how often the server has run a command.
func commandsOf(t testing.TB, r *redistest.Server, command string) int {
	t.Helper()
	stats := r.Do("INFO", "commandstats").(string)
	match := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// channels lists the channels that somebody listens to.
func channels(r *redistest.Server) []any { return r.Do("PUBSUB", "CHANNELS").([]any) }

// clientsOf returns how many connections the server has.
func clientsOf(r *redistest.Server) int {
	return strings.Count(r.Do("CLIENT", "LIST").(string), "\n")
}

// dial is wire for any goroutine. The caller closes the connection.
func (p *proc) dial() (*wire, error) {
	nc, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		return nil, err
	}
	return &wire{nc, p.t, bufio.NewReader(nc)}, nil
}

// leaveAfter sends a request and closes the connection after a while, whatever
// came over it.
func (p *proc) leaveAfter(request string, after time.Duration) error {
	w, err := p.dial()
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := io.WriteString(w, request); err != nil {
		return err
	}
	time.Sleep(after)
	return nil
}
