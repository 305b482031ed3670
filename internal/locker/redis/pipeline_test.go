package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func TestForgottenScriptsAreInvisible(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	for range 3 {
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		cycle(t, b)
	}
}

func TestForgottenScriptsAreInvisibleInBatches(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		server.Do("SCRIPT", "FLUSH")
		// While the server is frozen calls pile up; then they go out together.
		server.Stop()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				key := locker.Key(fmt.Sprintf("%d/%d", round, i))
				if i%2 == 0 {
					if _, err := b.Acquire(t.Context(), claimFor(key)); err != nil {
						t.Errorf("acquire: %v", err)
					}
				} else if _, err := b.Inspect(t.Context(), key); err != nil {
					t.Errorf("inspect: %v", err)
				}
			})
		}
		eventually(t, "calls are queued", func() bool { return only(b).acquire.poolStats().Queued >= 90 })
		server.Cont()
		wg.Wait()
	}
	if s := only(b).acquire.poolStats(); s.Batches > s.Calls/10 {
		t.Errorf("%d calls went out in %d batches", s.Calls, s.Batches)
	}
}

// occupy keeps all lanes for acquires busy with a server that is frozen.
func occupy(t *testing.T, b *Backend) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for range acquireLanes {
		wg.Go(func() { _ = b.Ping(t.Context()) })
	}
	eventually(t, "no lane is idle", func() bool {
		only(b).acquire.mu.Lock()
		defer only(b).acquire.mu.Unlock()
		return len(only(b).acquire.idle) == 0
	})
	return &wg
}

func TestCallsThatPassTheirDeadlineInTheQueueAreNeverSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: 30 * time.Second})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	blockers := occupy(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreBusy, true)
	server.Cont()
	blockers.Wait()
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := server.Keys("*"); len(keys) != 0 {
		t.Errorf("keys %q: the abandoned call was sent", keys)
	}
	if n := only(b).acquire.poolStats().Abandoned; n != 1 {
		t.Errorf("%d calls counted as abandoned, want 1", n)
	}
}

func TestACallThatIsBeingRefusedAtItsDeadlineWasCertainlyNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline("acquire", nil, time.Second, new(atomic.Uint64), 0)
		defer p.close()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		c := &call{}
		p.submit(ctx, c)
		if got := p.takeLocked(1, refused); len(got) != 1 {
			t.Fatalf("took %d calls, want 1", len(got))
		}
		time.AfterFunc(2*time.Second, func() {
			c.fail(&locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed})
		})
		wantStoreError(t, "await", p.await(ctx, c), locker.StoreUnavailable, true)
	})
}

func TestOneCallersDeadlineDoesNotCutAnothersAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: 30 * time.Second})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	wg := occupy(t, b)
	var haste sync.WaitGroup
	for i := range 10 {
		acquire := func(name string, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := b.Acquire(ctx, claimFor(locker.Key(name+strconv.Itoa(i))))
			return err
		}
		haste.Go(func() {
			if err := acquire("hasty", time.Duration(i+1)*10*time.Millisecond); err == nil {
				t.Error("a frozen server answered")
			}
		})
		wg.Go(func() {
			if err := acquire("patient", 30*time.Second); err != nil {
				t.Errorf("acquire without haste: %v", err)
			}
		})
	}
	haste.Wait()
	eventually(t, "the others are queued", func() bool { return only(b).acquire.poolStats().Queued >= 10 })
	if only(b).acquire.poolStats().Abandoned == 0 {
		t.Error("none of those in haste was queued: this does not show what it is to")
	}
	server.Cont()
	wg.Wait()
}

func TestADemotionThatShowsInTheMidstOfABatchEndsTheConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, b, claimFor("held"))
	server.Do("REPLICAOF", "127.0.0.1", "1")
	before := only(b).acquire.poolStats().Connects
	server.Stop()
	var wg sync.WaitGroup
	for _, key := range []locker.Key{"held", "held", "held", "free", "held", "free"} { // replicas can tell what is held
		wg.Go(func() { _, _ = b.Acquire(t.Context(), claimFor(key)) })
	}
	eventually(t, "calls are queued", func() bool { return only(b).acquire.poolStats().Queued >= 3 })
	server.Cont()
	wg.Wait()
	if s := only(b).acquire.poolStats(); s.Connections == acquireLanes && s.Connects == before {
		t.Error("all connections to the demoted server are kept")
	}
}

func TestRenewalsAndReleasesDoNotWaitForAcquires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{StoreTimeout: 30 * time.Second})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	for _, l := range only(b).acquire.all { // whatever keeps them: they are taken
		l.use.Lock()
		defer l.use.Unlock()
	}
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := releaseOne(t.Context(), b, c); err != nil {
		t.Errorf("release: %v", err)
	}
}

func TestAnIdleConnectionThatTheServerHasClosedIsReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, addr := range []Address{TCP(server.Addr()), Unix(server.Socket())} {
		b := open(t, server, Config{Addrs: []Address{addr}})
		for i := range 5 {
			mustAcquire(t, b, claimFor(locker.Key(fmt.Sprintf("%s/%d", addr, i))))
			if n := only(b).acquire.poolStats().Connects; n != uint64(i+1) {
				t.Errorf("%d connections were opened for %d calls one after the other, each over a new one", n, i+1)
			}
			server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			eventually(t, "the end has arrived", func() bool { return !hasQuietLink(only(b).acquire) })
		}
	}
}

func hasQuietLink(p *pipeline) bool {
	for _, l := range p.all {
		l.use.Lock()
		quiet := l.link != nil && l.link.wire.quiet()
		l.use.Unlock()
		if quiet {
			return true
		}
	}
	return false
}

func TestACallPrefersAConnectionThatIsThere(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := only(b).acquire
	before := p.poolStats().Connects
	ctx, cancel := context.WithCancel(t.Context())
	server.Stop()
	left := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, claimFor(testKey))
		left <- err
	}()
	eventually(t, "the call is being sent", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle) == acquireLanes-1
	})
	cancel() // its connection is cut
	<-left
	server.Cont()
	for range 5 {
		if err := b.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.poolStats(); s.Connects != before || s.Connections != acquireLanes-1 {
		t.Errorf("%d connections after %d more were opened, want %d and none", s.Connections, s.Connects-before, acquireLanes-1)
	}
}

// oddServer answers the set-up of a connection as Redis does, and every script
// with what answer returns for it.
func oddServer(t *testing.T, answer func(args []string) string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serveOdd(c, answer)
			})
		}
	})
	return l.Addr().String()
}

func serveOdd(c net.Conn, answer func(args []string) string) {
	r := bufio.NewReader(c)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		var reply string
		switch strings.ToLower(args[0]) {
		case "hello":
			reply = "-ERR unknown command 'HELLO'\r\n"
		case "time":
			now := time.Now()
			reply = array(strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()/1000))
		default:
			reply = answer(args)
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	args := make([]string, n)
	for i := range args {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, err
		}
		args[i] = string(buf[:size])
	}
	return args, nil
}

func array(items ...string) string {
	out := fmt.Sprintf("*%d\r\n", len(items))
	for _, s := range items {
		out += fmt.Sprintf("$%d\r\n%s\r\n", len(s), s)
	}
	return out
}

// idOf returns the id of a script call among its words: it follows the keys.
func idOf(args []string) string {
	keys, _ := strconv.Atoi(args[2])
	return args[3+keys]
}

func TestAnswersThatCannotBeReadAreUnknownAndEndTheConnection(t *testing.T) {
	t.Parallel()
	stamp := strconv.FormatInt(time.Now().UnixMicro(), 10)
	for name, answer := range map[string]func(args []string) string{
		"another call's id":      func([]string) string { return array("another", stamp, "granted", "5") },
		"no id":                  func([]string) string { return array() },
		"a number":               func([]string) string { return ":1\r\n" },
		"a status":               func([]string) string { return "+OK\r\n" },
		"nil":                    func([]string) string { return "$-1\r\n" },
		"no time":                func(a []string) string { return array(idOf(a), "x", "granted", "5") },
		"rubbish":                func([]string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" },
		"a cut answer":           func(a []string) string { return array(idOf(a), stamp, "granted")[:12] },
		"a bulk of 512 MB":       func([]string) string { return "$536870912\r\nls1/pod/SECRET\r\n" },
		"end of stream":          func([]string) string { return "" },
		"no verdict":             func(a []string) string { return array(idOf(a), stamp) },
		"an unknown verdict":     func(a []string) string { return array(idOf(a), stamp, "perhaps") },
		"a grant without fence":  func(a []string) string { return array(idOf(a), stamp, "granted") },
		"a fence out of range":   func(a []string) string { return array(idOf(a), stamp, "granted", "9007199254740992") },
		"a fence below 1":        func(a []string) string { return array(idOf(a), stamp, "granted", "0") },
		"a holder without value": func(a []string) string { return array(idOf(a), stamp, "held", "5") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := New(Config{Addrs: []Address{TCP(oddServer(t, answer))}, StoreTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			if err := b.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := claimFor(testKey)
			for range acquireLanes {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = b.Acquire(ctx, c)
				cancel()
				var failure *locker.StoreError
				if !errors.As(err, &failure) || failure.Certain {
					t.Errorf("acquire: %v, want an unknown outcome", err)
				}
				if contains(err, "SECRET") || contains(err, c.Token.Reveal()) {
					t.Error("the error quotes the answer")
				}
			}
		})
	}
}

func TestAnErrorReplyThatQuotesTheTokenIsNotPassedOn(t *testing.T) {
	t.Parallel()
	c := claimFor(testKey)
	addr := oddServer(t, func(args []string) string {
		return "-ERR unknown command '" + args[0] + "', with args beginning with: '" + c.Token.Reveal() + "'\r\n"
	})
	b, err := New(Config{Addrs: []Address{TCP(addr)}, StoreTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	_, err = b.Acquire(t.Context(), c)
	wantStoreError(t, "acquire", err, locker.StoreFailed, true)
	if contains(err, c.Token.Reveal()) {
		t.Error("the error quotes the token")
	}
}

func TestAnAnswerThatComesTwiceIsNotTakenForThatOfAnotherCall(t *testing.T) {
	t.Parallel()
	stamp := strconv.FormatInt(time.Now().UnixMicro(), 10)
	addr := oddServer(t, func(a []string) string {
		reply := array(idOf(a), stamp, "granted", a[3]) // the key comes back as the fence
		return reply + reply
	})
	b, err := New(Config{Addrs: []Address{TCP(addr)}, StoreTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for i := range 50 {
		key := strconv.Itoa(i + 1)
		grant, err := b.Acquire(t.Context(), claimFor(locker.Key(key)))
		if err == nil && grant.Fence != locker.Fence(i+1) {
			t.Fatalf("call %s got the answer of call %d", key, grant.Fence)
		}
	}
}
