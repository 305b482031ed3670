// worker is the application of the scenarios: it takes a lock of its sidecar
// over HTTP, works under it, and writes into a journal what it believes.
//
// It is careful unless told otherwise: it works only while the lock is valid
// by the sidecar's last word and its own clock, and while the stream of a
// bound lock is open. With -careless it works until it is killed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// beat is how often it writes that it is at work, and so how exactly the end
// of one that is killed is known.
const beat = 10 * time.Millisecond

type worker struct {
	base, key, ttl, wait string
	maxHold              string // "" for none
	bind, careless       bool
	hold                 time.Duration
	name                 string
	out                  *os.File
	term                 chan struct{} // closed when the work is to end
	giveBack             bool
}

func main() {
	var w worker
	folder := flag.String("journal", "/journal", "folder for the journal")
	flag.StringVar(&w.base, "url", env("LOCKSIDECAR_URL", "http://127.0.0.1:5625"), "the sidecar")
	flag.StringVar(&w.key, "key", "job", "the lock")
	flag.StringVar(&w.ttl, "ttl", "5s", "its lease")
	flag.StringVar(&w.wait, "wait", "30s", "how long to stand in line at a time")
	flag.StringVar(&w.maxHold, "max-hold", "", "never hold it longer")
	flag.BoolVar(&w.bind, "bind", false, "bind the lock to the connection")
	flag.BoolVar(&w.careless, "careless", false, "do not ask whether the lock is still valid")
	flag.DurationVar(&w.hold, "hold", 0, "how long to hold it; 0: until the end")
	flag.BoolVar(&w.giveBack, "give-back", false, "give the lock back on SIGTERM, when the delay is over")
	rounds := flag.Int("rounds", 0, "how often to take it; 0: without end")
	delay := flag.Duration("exit-delay", 0, "time from SIGTERM to the end")
	ignore := flag.Bool("ignore-term", false, "ignore SIGTERM")
	idle := flag.Bool("idle", false, "take no lock")
	flag.Parse()
	if !w.bind {
		// As curl does, which has gone when it has its answer.
		http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	}

	host, _ := os.Hostname()
	w.name = fmt.Sprintf("%s.%d", host, time.Now().UnixMilli())
	var err error
	w.out, err = os.OpenFile(filepath.Join(*folder, w.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	w.term = make(chan struct{})
	w.tell(journal.Start, 0)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		w.tell(journal.Term, 0)
		if *ignore {
			return
		}
		time.Sleep(*delay)
		close(w.term)
	}()

	hungry := make(chan os.Signal, 1)
	signal.Notify(hungry, syscall.SIGUSR1)
	go func() {
		<-hungry
		eatMemory()
	}()

	if *idle {
		<-w.term
	}
	for n := 0; *rounds == 0 || n < *rounds; n++ {
		if !w.round() {
			break
		}
	}
	w.tell(journal.End, 0)
}

func env(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}

// tell writes one line by one call, so that a kill leaves no half of it.
func (w *worker) tell(kind string, fence uint64) {
	key := w.key
	if fence == 0 {
		key = "-"
	}
	e := journal.Event{At: time.Now(), Kind: kind, Key: key, Fence: fence, Worker: w.name}
	if _, err := w.out.WriteString(e.String() + "\n"); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// grant is what the sidecar tells of a lock that is held.
type grant struct {
	Fence      uint64 `json:"fencing_token"`
	ValidUntil int64  `json:"valid_until_boottime_ms"`
}

// round takes the lock once and works under it. False means that SIGTERM has
// arrived.
func (w *worker) round() bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	taken := make(chan struct{})
	go func() {
		select {
		case <-w.term:
			cancel() // and with it the place in line
		case <-taken:
		}
	}()
	g, stream, err := w.take(ctx)
	close(taken)
	if err != nil {
		select {
		case <-w.term:
			return false
		case <-time.After(50 * time.Millisecond):
			fmt.Fprintln(os.Stderr, "worker:", err)
			return true
		}
	}
	if stream != nil {
		defer func() { _ = stream.Close() }() // which gives the lock back
	}
	w.tell(journal.Enter, g.Fence)

	var validUntil atomic.Int64
	validUntil.Store(g.ValidUntil)
	lost := make(chan struct{})
	if w.bind {
		go w.follow(g.Fence, stream, &validUntil, lost)
	} else if !w.careless {
		go w.ask(ctx, g.Fence, &validUntil, lost)
	}
	var over <-chan time.Time
	if w.hold > 0 {
		over = time.After(w.hold)
	}
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	heard := lost
	if w.careless {
		heard = nil
	}
	for {
		select {
		case <-w.term:
			w.tell(journal.Exit, g.Fence)
			if w.giveBack {
				if stream == nil {
					w.release(g.Fence)
				}
				return false
			}
			// It gives nothing back: a bound lock ends with the process.
			w.tell(journal.End, 0)
			os.Exit(0)
		case <-over:
			w.tell(journal.Exit, g.Fence)
			if stream == nil {
				w.release(g.Fence)
			}
			return true
		case <-heard:
			w.tell(journal.Lost, g.Fence)
			return true
		case <-ticks.C:
			if !w.careless && boottime() >= validUntil.Load() {
				w.tell(journal.Lost, g.Fence)
				return true
			}
			w.tell(journal.Beat, g.Fence)
		}
	}
}

// eatMemory takes ever more, until the process is killed for it.
func eatMemory() {
	for eaten := [][]byte{}; ; {
		piece := make([]byte, 1<<20)
		for i := range piece {
			piece[i] = 1 // or the kernel would not give it
		}
		eaten = append(eaten, piece)
	}
}

// take asks for the lock. With bind it returns the stream, which has said
// "held".
func (w *worker) take(ctx context.Context) (grant, io.ReadCloser, error) {
	form := url.Values{"ttl": {w.ttl}, "wait": {w.wait}}
	if w.maxHold != "" {
		form.Set("max_hold", w.maxHold)
	}
	if w.bind {
		form.Set("bind", "connection")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+"/locks/"+w.key, strings.NewReader(form.Encode()))
	if err != nil {
		return grant{}, nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return grant{}, nil, err
	}
	if answer.StatusCode != http.StatusCreated {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return grant{}, nil, fmt.Errorf("%s: %s", answer.Status, text)
	}
	var g grant
	if !w.bind {
		defer func() { _ = answer.Body.Close() }()
		return g, nil, json.NewDecoder(answer.Body).Decode(&g)
	}
	lines := bufio.NewReader(answer.Body)
	event, data, err := next(lines)
	if err == nil && event != "held" {
		err = fmt.Errorf("the stream began with %q", event)
	}
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		_ = answer.Body.Close()
		return grant{}, nil, err
	}
	return g, struct {
		io.Reader
		io.Closer
	}{lines, answer.Body}, nil
}

// follow reads the stream of a bound lock. Its end means not held.
func (w *worker) follow(fence uint64, stream io.Reader, validUntil *atomic.Int64, lost chan<- struct{}) {
	defer close(lost)
	for lines := bufio.NewReader(stream); ; {
		event, data, err := next(lines)
		if err != nil || event == "lost" || event == "released" {
			return
		}
		var g grant
		if json.Unmarshal(data, &g) == nil && g.ValidUntil > 0 {
			validUntil.Store(g.ValidUntil)
		}
		if event == "renewed" {
			w.tell(journal.Renewed, fence)
		}
	}
}

func next(lines *bufio.Reader) (event string, data []byte, err error) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && event != "":
			return event, data, nil
		case strings.HasPrefix(line, "event: "):
			event = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = []byte(line[len("data: "):])
		}
	}
}

// ask asks ten times a second whether the lock is held. No answer leaves the
// last word standing; a "no" ends the work.
func (w *worker) ask(ctx context.Context, fence uint64, validUntil *atomic.Int64, lost chan<- struct{}) {
	for ticks := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			ticks.Stop()
			return
		case <-ticks.C:
		}
		g, err := w.look(ctx, fence)
		if errors.Is(err, errNotHeld) {
			close(lost)
			return
		}
		if err == nil {
			validUntil.Store(g.ValidUntil)
		}
	}
}

var errNotHeld = errors.New("not held")

func (w *worker) look(ctx context.Context, fence uint64) (grant, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.one(fence), nil)
	if err != nil {
		return grant{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return grant{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
		var g grant
		return g, json.NewDecoder(answer.Body).Decode(&g)
	case http.StatusNotFound, http.StatusConflict, http.StatusGone:
		return grant{}, errNotHeld
	}
	return grant{}, errors.New(answer.Status)
}

func (w *worker) one(fence uint64) string {
	return w.base + "/locks/" + w.key + "?fencing_token=" + strconv.FormatUint(fence, 10)
}

func (w *worker) release(fence uint64) {
	request, err := http.NewRequest(http.MethodDelete, w.one(fence), nil)
	if err != nil {
		return
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return
	}
	_ = answer.Body.Close()
}

// boottime is the clock of valid_until_boottime_ms, in milliseconds.
func boottime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // the clock is there on every Linux
	}
	return t.Nano() / int64(time.Millisecond)
}
