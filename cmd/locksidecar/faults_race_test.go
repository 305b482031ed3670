package main

import (
	"bufio"
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	lockredis "github.com/locksidecar/locksidecar/internal/locker/redis"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// monitor follows what a server does to locks.
type monitor struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader

	release string // what calls of that script have in them

	// The following are never shown: they hold tokens.
	asked    string             // the last command of a client
	held     map[string]string  // by key, the token that is there
	released map[string]float64 // by token, when, in seconds

	renewals int
}

// watch starts to follow the server.
func watch(t *testing.T, redis *redistest.Server) *monitor {
	t.Helper()
	conn, err := net.Dial("unix", redis.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	m := &monitor{t: t, conn: conn, lines: bufio.NewReaderSize(conn, 1<<16), held: make(map[string]string), released: make(map[string]float64)}
	m.release = fmt.Sprintf("%x", sha1.Sum([]byte(lockredis.Scripts()["release"])))
	if line, err := m.lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	return m
}

var (
	// inScript is a command that a script ran for a lock, with the value that a
	// SET puts there.
	inScript = regexp.MustCompile(`(?i)^\S+ \[\d+ lua\] "(SET|DEL|UNLINK|PEXPIRE)" "(lock:[^#"][^"]*)"(?: "(ls1/[^"]+)")?`)
	aToken   = regexp.MustCompile(`"(ls1/[^"]+)"`)
)

// read takes in lines until none comes for so long, and returns how many named
// a lock. It fails the test if a lock was renewed for one who did not have it,
// or if anything but a release carries a token that was given back before the
// longest time that a request can be on its way.
func (m *monitor) read(silence time.Duration) (n int) {
	for {
		_ = m.conn.SetReadDeadline(time.Now().Add(silence))
		line, err := m.lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		}
		if err != nil {
			m.t.Error(err)
			return n
		}
		if !strings.Contains(line, `"lock:`) {
			continue
		}
		n++
		stamp, _, _ := strings.Cut(line[1:], " ")
		at, err := strconv.ParseFloat(stamp, 64)
		if err != nil {
			m.t.Error(err)
			return n
		}
		m.take(at, line[1:])
	}
}

func (m *monitor) take(at float64, command string) {
	match := inScript.FindStringSubmatch(command)
	if match == nil {
		if strings.Contains(command, " lua] ") {
			return // of the grant's record
		}
		m.asked = command
		if strings.Contains(command, m.release) {
			return // repeated once a renewal that was on its way cannot be executed any more
		}
		for _, token := range aToken.FindAllStringSubmatch(command, -1) {
			if before, over := m.released[token[1]]; over && at-before > storeTimeout.Seconds() {
				m.t.Errorf("a command was sent %.3f s after the release of its grant", at-before)
			}
		}
		return
	}
	switch key := match[2]; strings.ToUpper(match[1]) {
	case "SET":
		m.held[key] = match[3]
	case "PEXPIRE":
		m.renewals++
		if m.held[key] == "" || !strings.Contains(m.asked, m.held[key]) {
			m.t.Errorf("%s was renewed for one who did not have it", key)
		}
	default:
		m.released[m.held[key]] = at
		m.held[key] = ""
	}
}

// contend has one caller take the lock and another give it back, each as often
// as it can until the time is over, and returns how many grants there were.
// The release comes after a pause of a length between the two.
func (p *proc) contend(key string, least, most time.Duration, until time.Time) (grants int64) {
	var taken, given atomic.Int64
	doubtful := false // a release was not confirmed, or not told
	var callers sync.WaitGroup
	post, del := p.wire(), p.wire()
	over := make(chan struct{})
	callers.Go(func() {
		defer close(over)
		var last locker.Fence
		for time.Now().Before(until) {
			a, err := post.exchange(request(http.MethodPost, "/locks/"+key, "ttl=1s"))
			switch {
			case err != nil:
				p.t.Error(err)
				return
			case a.Status == http.StatusCreated:
				taken.Add(1)
				if a.JSON.Fence <= last {
					p.t.Errorf("%s: fencing token %d after %d", key, a.JSON.Fence, last)
				}
				last = a.JSON.Fence
			case a.Status != http.StatusConflict && a.Status != http.StatusServiceUnavailable:
				p.t.Errorf("POST: %v", a)
			}
		}
	})
	callers.Go(func() {
		for ending := false; ; {
			a, err := del.exchange(request(http.MethodDelete, "/locks/"+key, ""))
			switch {
			case err != nil:
				p.t.Error(err)
				return
			case a.Status == http.StatusNoContent:
				given.Add(1)
			case a.Status == http.StatusServiceUnavailable || a.Status == http.StatusGone:
				doubtful = true
			case a.Status != http.StatusNotFound:
				p.t.Errorf("DELETE: %v", a)
			case ending:
				return
			}
			select {
			case <-over:
				ending = true // until there is nothing left to give back
			default:
				time.Sleep(least + rand.N(most-least))
			}
		}
	})
	callers.Wait()
	if taken.Load() != given.Load() && !doubtful && !p.hasLost() {
		p.t.Errorf("%s: %d grants and %d releases", key, taken.Load(), given.Load())
	}
	return taken.Load()
}

// hasLost tells whether a lease has run out, as happens in a pause of a process
// that is as long: it is not counted then what became of a grant.
func (p *proc) hasLost() bool { return strings.Contains(p.Log(), "lock lost") }

func TestNoRenewalFollowsARelease(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis, "LOG_LEVEL=info")
	m := watch(t, redis)
	until := time.Now().Add(4 * time.Second)
	var grants atomic.Int64
	var keys, monitoring sync.WaitGroup
	for i := range 4 { // as fast as can be
		keys.Go(func() { grants.Add(p.contend(fmt.Sprintf("fast%d", i), 0, time.Millisecond, until)) })
	}
	for i := range 24 { // when the renewal is due, after a third of the TTL
		keys.Go(func() {
			grants.Add(p.contend(fmt.Sprintf("due%d", i), 315*time.Millisecond, 350*time.Millisecond, until))
		})
	}
	given := make(chan struct{})
	monitoring.Go(func() {
		for over := false; !over; {
			select {
			case <-given:
				over = true // once more, for what is still to be read
			default:
			}
			m.read(time.Second)
		}
	})
	keys.Wait()
	close(given)
	monitoring.Wait()
	if n := m.read(700 * time.Millisecond); n > 0 { // two thirds of a TTL
		t.Errorf("%d commands for locks although all are given back", n)
	}
	for key, token := range m.held {
		if token != "" && !p.hasLost() {
			t.Errorf("%s is still held", key)
		}
	}
	if grants.Load() < 100 || m.renewals == 0 || len(m.released) == 0 {
		t.Errorf("%d grants and %d renewals show little", grants.Load(), m.renewals)
	}
	t.Logf("%d grants, %d renewals", grants.Load(), m.renewals)
}
