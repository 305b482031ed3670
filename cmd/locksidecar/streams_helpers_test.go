package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// heard is one event, as a caller has read it.
type heard struct {
	kind string // "" for a comment
	at   locker.Instant
	answer
}

// until is the instant until which the event says that nobody else has the lock.
func (h heard) until() locker.Instant { return locker.Instant(h.JSON.ValidUntilMS * 1e6) }

// follower is a caller who reads a stream of events.
type follower struct {
	p    *proc
	key  string
	asks locker.Instant
	conn net.Conn  // nil for curl
	curl *exec.Cmd // or nil

	taking sync.Mutex // what is read is noted before that the caller leaves, or not at all

	mu     sync.Mutex
	left   bool // what is read from now on was told before, and is not recorded
	events []heard
	ended  locker.Instant // 0 while it goes on
	err    error          // why it ended, if not by an orderly end
	look   chan struct{}  // closed and replaced with everything that is read
}

// onSocket starts a sidecar that listens on a Unix socket.
func onSocket(t testing.TB, env ...string) *proc {
	t.Helper()
	return startSidecar(t, append([]string{"LISTEN=unix://" + filepath.Join(t.TempDir(), "api")}, env...)...)
}

// dialAPI opens a connection to the API, whatever the network.
func (p *proc) dialAPI() (net.Conn, error) {
	if socket := p.socket(); socket != "" {
		return net.Dial("unix", socket)
	}
	return net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
}

// socket is the path of the Unix socket that the process listens on, if it does.
func (p *proc) socket() string {
	for _, setting := range p.cmd.Env {
		if path, ok := strings.CutPrefix(setting, envPrefix+"_LISTEN=unix://"); ok {
			return path
		}
	}
	return ""
}

// bind asks for a bound lock. It returns at once; see [follower.await]. It may
// be called from any goroutine.
func (p *proc) bind(key string, params ...string) *follower {
	form := strings.Join(append(params, "bind=connection"), "&")
	return p.follow(key, request(http.MethodPost, "/locks/"+key, form))
}

// bindHeld is bind for a lock that is free, and returns once it is held. Where the
// store was slow it asks again.
func (p *proc) bindHeld(key string, params ...string) *follower {
	p.t.Helper()
	for deadline := time.Now().Add(answerDeadline); ; {
		f := p.bind(key, params...)
		if f.conn != nil {
			p.t.Cleanup(func() { _ = f.conn.Close() })
		}
		_, err := f.awaitErr("held", answerDeadline)
		if err == nil {
			return f
		}
		if !strings.Contains(err.Error(), "503 ") || time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
}

// watch asks for the events of a lock.
func (p *proc) watch(key string) *follower {
	return p.follow(key, "GET /locks/"+key+" HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
}

func (p *proc) follow(key, request string) *follower {
	f := &follower{p: p, key: key, asks: locker.BootTime(), look: make(chan struct{})}
	conn, err := p.dialAPI()
	if err == nil {
		f.conn = conn
		_, err = io.WriteString(conn, request)
	}
	if err != nil {
		f.end(err)
		return f
	}
	go func() {
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			f.end(err)
			return
		}
		if res.Header.Get("Content-Type") != "text/event-stream" {
			body, _ := io.ReadAll(res.Body)
			f.end(fmt.Errorf("%s %s", res.Status, body))
			return
		}
		f.readAll(bufio.NewReader(res.Body), res.StatusCode == http.StatusCreated)
	}()
	return f
}

// bindByCurl is bind for a curl, a process of its own.
func (p *proc) bindByCurl(key string, params ...string) *follower {
	p.t.Helper()
	needCurl(p.t)
	args := []string{"-sSN"}
	if socket := p.socket(); socket != "" {
		args = append(args, "--unix-socket", socket)
	}
	for _, param := range append(params, "bind=connection") {
		args = append(args, "-d", param)
	}
	f := &follower{p: p, key: key, asks: locker.BootTime(), look: make(chan struct{})}
	f.curl = exec.Command("curl", append(args, p.URL+"/locks/"+key)...)
	dieWithParent(f.curl)
	out, err := f.curl.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := f.curl.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(f.kill)
	go f.readAll(bufio.NewReader(out), true)
	return f
}

// readAll reads events until the end of the stream.
func (f *follower) readAll(r *bufio.Reader, granted bool) {
	var h heard
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			f.end(err)
			return
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			h.at = locker.BootTime()
			f.take(h, granted)
			h = heard{}
		case field == "event":
			h.kind = value
		case field == "data":
			h.Body = value
			if err := json.Unmarshal([]byte(value), &h.JSON); err != nil {
				f.end(fmt.Errorf("%w in %q", err, value))
				return
			}
		}
	}
}

// take notes an event, also in the record of what was promised.
func (f *follower) take(h heard, granted bool) {
	h.Sent, h.Got = h.at, h.at
	f.taking.Lock()
	defer f.taking.Unlock()
	f.mu.Lock()
	left := f.left
	f.mu.Unlock()
	if left {
		return
	}
	switch h.kind {
	case "held", "renewed", "at_risk", "draining":
		h.Sent = max(f.asks, h.until()-locker.Instant(h.JSON.ValidForMS*1e6)-locker.Instant(time.Millisecond))
		first := granted && len(f.heard()) == 0
		if first {
			h.Sent = f.asks
		}
		f.p.record.valid(f.p, f.key, first, h.answer)
	case "lost":
		f.p.record.lost(f.key, h.answer)
	case "released":
		f.p.record.gaveUp(f.p, f.key, h.at)
	}
	f.p.record.saw(f.p, "events of "+f.key, h.Body)
	f.note(func() { f.events = append(f.events, h) })
}

func (f *follower) end(err error) {
	f.note(func() { f.ended, f.err = locker.BootTime(), err })
}

func (f *follower) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.look)
	f.look = make(chan struct{})
}

// heard returns what was read so far, without comments.
func (f *follower) heard() []heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.events), func(h heard) bool { return h.kind == "" })
}

func (f *follower) kinds() string {
	var kinds []string
	for _, h := range f.heard() {
		kinds = append(kinds, h.kind)
	}
	return strings.Join(kinds, " ")
}

// awaitErr returns the first event of a kind, or the end for "", once it has
// come. It may be called from any goroutine.
func (f *follower) awaitErr(kind string, within time.Duration) (heard, error) {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		f.mu.Lock()
		i := slices.IndexFunc(f.events, func(h heard) bool { return h.kind == kind && kind != "" })
		var found heard
		if i >= 0 {
			found = f.events[i]
		}
		ended, err, look := f.ended, f.err, f.look
		f.mu.Unlock()
		switch {
		case i >= 0:
			return found, nil
		case ended != 0 && kind == "":
			return heard{at: ended}, nil
		case ended != 0:
			return heard{}, fmt.Errorf("%s: the stream has ended (%v) without %s: %s", f.key, err, kind, f.kinds())
		}
		select {
		case <-look:
		case <-limit.C:
			return heard{}, fmt.Errorf("%s: no %q within %v: %s", f.key, kind, within, f.kinds())
		}
	}
}

// await is awaitErr for what must come.
func (f *follower) await(kind string, within time.Duration) heard {
	f.p.t.Helper()
	h, err := f.awaitErr(kind, within)
	if err != nil {
		f.p.t.Fatal(err)
	}
	return h
}

// over tells whether the stream has ended.
func (f *follower) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended != 0
}

// lastHeld returns the last event that said that the lock is held.
func (f *follower) lastHeld() heard {
	events := f.heard()
	for _, h := range slices.Backward(events) {
		if h.kind != "lost" && h.kind != "released" {
			return h
		}
	}
	return heard{}
}

// gone notes in the record that the caller leaves now.
func (f *follower) gone() {
	f.taking.Lock()
	defer f.taking.Unlock()
	f.note(func() { f.left = true })
	f.p.record.gaveUp(f.p, f.key, locker.BootTime())
}

// kill ends curl by SIGKILL.
func (f *follower) kill() {
	f.gone()
	_ = f.curl.Process.Kill()
	_ = f.curl.Wait() // killed
}

// close, reset and endSending end the connection each in its way.
func (f *follower) close() {
	f.gone()
	_ = f.conn.Close()
}

func (f *follower) reset() {
	f.gone()
	if tcp, ok := f.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = f.conn.Close()
}

func (f *follower) endSending() {
	f.gone()
	_ = f.conn.(interface{ CloseWrite() error }).CloseWrite()
}

// waysToEnd are the ends that a bound connection can have.
var waysToEnd = map[string]func(*follower){
	"close": (*follower).close, "reset": (*follower).reset, "half-close": (*follower).endSending, "curl -N killed": (*follower).kill,
}

// bindFor has the caller that leaves in that way bind the lock.
func (p *proc) bindFor(way, key string, params ...string) *follower {
	p.t.Helper()
	if way == "curl -N killed" {
		return p.bindByCurl(key, params...)
	}
	f := p.bind(key, params...)
	if f.conn != nil {
		p.t.Cleanup(func() { _ = f.conn.Close() })
	}
	return f
}

// spread describes durations by their median, 99th percentile and worst.
func spread(all []time.Duration) string {
	slices.Sort(all)
	at := func(q float64) time.Duration {
		return all[min(len(all)-1, int(q*float64(len(all))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("median %v, p99 %v, worst %v of %d", at(0.5), at(0.99), at(1), len(all))
}
