package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// start returns a server and a proxy before it.
func start(t *testing.T) (*redistest.Server, *Proxy) {
	t.Helper()
	s := redistest.Start(t)
	return s, Start(t, "tcp", s.Addr())
}

// on applies an action to commands of one name.
func on(name string, a Action) func(Command) Action {
	return func(c Command) Action {
		if c.Name == name {
			return a
		}
		return Action{}
	}
}

// eventually polls until what happens on another connection is seen.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// counter returns what INCR has made of a key.
func counter(s *redistest.Server, key string) string {
	value, _ := s.Get(key)
	return value
}

func TestProxyPassesEverythingOnUnchanged(t *testing.T) {
	s := redistest.Start(t)
	for network, upstream := range map[string]string{"tcp": s.Addr(), "unix": s.Socket()} {
		t.Run(network, func(t *testing.T) {
			c := dial(t, Start(t, network, upstream))
			big := strings.Repeat("x", 1<<20)
			c.send("SET", "k", big)
			c.want("+OK\r\n")
			c.send("GET", "k")
			c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(big), big))
			for i := range 100 {
				c.send("ECHO", fmt.Sprint(i))
			}
			for i := range 100 {
				c.want(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
			}
			c.send("MULTI")
			c.send("GET", "nothing")
			c.send("EXEC")
			c.want("+OK\r\n")
			c.want("+QUEUED\r\n")
			c.want("*1\r\n$-1\r\n")
			c.send("QUIT")
			c.want("+OK\r\n")
			c.wantEnd()
		})
	}
}

func TestSubscriptionsPassInBothProtocols(t *testing.T) {
	s, p := start(t)
	for _, protocol := range []string{"2", "3"} {
		t.Run("RESP"+protocol, func(t *testing.T) {
			c := dial(t, p)
			mark := map[string]string{"2": "*", "3": ">"}[protocol]
			c.send("HELLO", protocol)
			if _, err := readValue(c.r); err != nil {
				t.Fatal(err)
			}
			c.send("SUBSCRIBE", "a", "b")
			c.want(mark + "3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
			c.want(mark + "3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
			s.Do("PUBLISH", "a", "hello")
			c.want(mark + "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n")
			c.send("UNSUBSCRIBE", "a", "b")
			c.want(mark + "3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n")
			c.want(mark + "3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n")
			c.send("ECHO", "x")
			c.want("$1\r\nx\r\n")
		})
	}
}

func TestLostReplyIsExecutedAndEndsTheConnection(t *testing.T) {
	s, p := start(t)
	p.SetRule(on("INCR", Action{LoseReply: true}))
	c := dial(t, p)
	c.send("INCR", "n")
	c.wantEnd()
	if n := counter(s, "n"); n != "1" {
		t.Errorf("counter %q at the end of the connection, want it executed before", n)
	}
	p.SetRule(nil)
	c = dial(t, p)
	c.send("INCR", "n")
	c.want(":2\r\n")
}

func TestSwallowedReplyIsFollowedByTheNext(t *testing.T) {
	_, p := start(t)
	p.SetRule(on("INCR", Action{SwallowReply: true}))
	c := dial(t, p)
	c.send("INCR", "n")
	c.send("GET", "n")
	c.want("$1\r\n1\r\n")
}

func TestDelaysKeepTheOrderOfAConnection(t *testing.T) {
	s, p := start(t)
	const delay = 50 * time.Millisecond
	for name, a := range map[string]Action{"request": {RequestDelay: delay}, "reply": {ReplyDelay: delay}} {
		t.Run(name, func(t *testing.T) {
			s.Do("DEL", "n")
			p.SetRule(on("INCR", a))
			c := dial(t, p)
			start := time.Now()
			c.send("INCR", "n")
			c.send("ECHO", "behind")
			if name == "reply" {
				eventually(t, "execution", func() bool { return counter(s, "n") == "1" })
			}
			c.want(":1\r\n")
			c.want("$6\r\nbehind\r\n")
			if took := time.Since(start); took < delay {
				t.Errorf("the answers took %v, want at least %v", took, delay)
			}
		})
	}
}

func TestHeldRequestIsExecutedAfterTheClientHasLeft(t *testing.T) {
	s, p := start(t)
	release := make(chan struct{})
	p.SetRule(on("INCR", Action{Hold: release}))
	c := dial(t, p)
	c.send("INCR", "n")
	c.send("INCR", "n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx, "INCR", 1); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()

	other := dial(t, p) // other connections are not held
	other.send("ECHO", "x")
	other.want("$1\r\nx\r\n")
	if n := counter(s, "n"); n != "" {
		t.Errorf("counter %q before the release", n)
	}
	close(release)
	eventually(t, "execution", func() bool { return counter(s, "n") == "2" })
}

func TestCommandSentTwiceIsExecutedTwiceAndAnsweredOnce(t *testing.T) {
	for name, repeat := range map[string]Repeat{"same connection": RepeatInPlace, "other connection": RepeatElsewhere} {
		t.Run(name, func(t *testing.T) {
			s, p := start(t)
			p.SetRule(on("APPEND", Action{Repeat: repeat}))
			c := dial(t, p)
			c.send("APPEND", "s", "x")
			c.send("ECHO", "behind")
			if _, err := readValue(c.r); err != nil { // which copy came first is not told
				t.Fatal(err)
			}
			c.want("$6\r\nbehind\r\n")
			eventually(t, "both executions", func() bool { return counter(s, "s") == "xx" })
		})
	}
}

func TestResetAndBlackHolePassNothingOn(t *testing.T) {
	s, p := start(t)
	p.SetRule(on("INCR", Action{Reset: true}))
	c := dial(t, p)
	c.send("INCR", "n")
	c.wantEnd()

	p.SetRule(on("INCR", Action{BlackHole: true}))
	c = dial(t, p)
	c.send("ECHO", "before")
	c.send("INCR", "n")
	c.send("ECHO", "behind")
	c.want("$6\r\nbefore\r\n")
	c.wantSilence(50 * time.Millisecond)
	if n := counter(s, "n"); n != "" {
		t.Errorf("counter %q", n)
	}
}

func TestConnectionsCanBeRefusedAsTheyAreOpened(t *testing.T) {
	_, p := start(t)
	p.SetConnect(func(n int) Connect { return []Connect{ConnectReset, ConnectBlackHole, ConnectPass}[n] })
	wantReset(t, p)
	c := dial(t, p)
	c.send("ECHO", "x")
	c.wantSilence(50 * time.Millisecond)
	c = dial(t, p)
	c.send("ECHO", "x")
	c.want("$1\r\nx\r\n")
	if n := p.Connections(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	p.SetConnect(nil)
	c = dial(t, p)
	c.send("ECHO", "x")
	c.want("$1\r\nx\r\n")
}

func TestUnreachableServerResetsTheClient(t *testing.T) {
	s, p := start(t)
	s.Kill()
	wantReset(t, p)
}

func TestServerThatDiesEndsItsConnections(t *testing.T) {
	s, p := start(t)
	c := dial(t, p)
	c.send("ECHO", "x")
	c.want("$1\r\nx\r\n")
	s.Kill()
	c.wantEnd()
	s.Restart()
	c = dial(t, p)
	c.send("ECHO", "x")
	c.want("$1\r\nx\r\n")
}

func TestCutEndsAllConnectionsAndNoLaterOnes(t *testing.T) {
	_, p := start(t)
	a, b := dial(t, p), dial(t, p)
	for _, c := range []*client{a, b} {
		c.send("ECHO", "x")
		c.want("$1\r\nx\r\n")
	}
	p.Cut()
	a.wantEnd()
	b.wantEnd()
	c := dial(t, p)
	c.send("ECHO", "x")
	c.want("$1\r\nx\r\n")
}

func TestReplyIsReplaced(t *testing.T) {
	_, p := start(t)
	raw := []byte("$5\r\nhello\r\n")
	for name, replace := range map[string]func([]byte) []byte{
		"garbled": Garble, "huge": HugeBulk, "push": PushFirst, "truncated": Truncate,
	} {
		t.Run(name, func(t *testing.T) {
			p.SetRule(on("ECHO", Action{Replace: replace}))
			c := dial(t, p)
			c.send("ECHO", "hello")
			want := replace(bytes.Clone(raw))
			got := make([]byte, len(want))
			for i := range got {
				var err error
				if got[i], err = c.r.ReadByte(); err != nil {
					t.Fatalf("got %q, then %v", got[:i], err)
				}
			}
			if !bytes.Equal(got, want) || bytes.Equal(got, raw) {
				t.Errorf("got %q, want %q, which is not the reply", got, want)
			}
		})
	}
}

func TestSpeedIsLimited(t *testing.T) {
	_, p := start(t)
	p.SetRule(on("ECHO", Action{BytesPerSecond: 20_000}))
	c := dial(t, p)
	text := strings.Repeat("x", 2000)
	start := time.Now()
	c.send("ECHO", text)
	c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("4 kB took %v, want at least 200ms", took)
	}
}

func TestScriptsAreToldApartByTheirFirstLine(t *testing.T) {
	_, p := start(t)
	const loaded, evaluated, unknown = "-- loaded\nreturn 1", "-- evaluated\nreturn 2", "-- told\nreturn 3"
	scripts := make(chan string, 10)
	p.SetRule(func(c Command) Action {
		scripts <- c.Script
		return Action{}
	})
	c := dial(t, p)
	for _, step := range []struct{ command, reply, script string }{
		{"SCRIPT|LOAD|" + loaded, "$40\r\n" + shaOf(loaded) + "\r\n", ""},
		{"EVALSHA|" + strings.ToUpper(shaOf(loaded)) + "|0", ":1\r\n", "-- loaded"},
		{"EVAL|" + evaluated + "|0", ":2\r\n", "-- evaluated"},
		{"EVALSHA|" + shaOf(evaluated) + "|0", ":2\r\n", "-- evaluated"},
		{"EVALSHA|" + shaOf(unknown) + "|0", "-NOSCRIPT No matching script. Please use EVAL.\r\n", shaOf(unknown)},
	} {
		c.send(strings.Split(step.command, "|")...)
		c.want(step.reply)
		if got := <-scripts; got != step.script {
			t.Errorf("script %q, want %q", got, step.script)
		}
	}
	p.LearnScript(unknown)
	c.send("EVALSHA", shaOf(unknown), "0")
	c.want("-NOSCRIPT No matching script. Please use EVAL.\r\n")
	if got := <-scripts; got != "-- told" {
		t.Errorf("script %q, want that of the text told", got)
	}
}

func TestCommandsAreCountedAndDescribed(t *testing.T) {
	_, p := start(t)
	seen := make(chan Command, 10)
	p.SetRule(func(c Command) Action {
		seen <- c
		return Action{}
	})
	first, second := dial(t, p), dial(t, p)
	first.send("set", "k", "v")
	first.want("+OK\r\n")
	second.send("GET", "k")
	second.want("$1\r\nv\r\n")
	second.send("GET", "l")
	second.want("$-1\r\n")

	set, get := <-seen, <-seen
	if set.Name != "SET" || set.N != 0 || get.N != 1 || set.Conn == get.Conn {
		t.Errorf("told of %+v and %+v", set, get)
	}
	if !set.Mentions("k") || set.Mentions("SET") || set.Mentions("x") {
		t.Errorf("%+v mentions k: %v, SET: %v, x: %v", set, set.Mentions("k"), set.Mentions("SET"), set.Mentions("x"))
	}
	if counts := p.Counts(); counts["SET"] != 1 || counts["GET"] != 2 || len(counts) != 2 {
		t.Errorf("counts %v", counts)
	}
	if err := p.Await(t.Context(), "GET", 2); err != nil {
		t.Error(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := p.Await(ctx, "GET", 3); !errors.Is(err, cause) {
		t.Errorf("awaiting what does not come: %v", err)
	}
}

func TestCloseEndsWhatIsHeldBack(t *testing.T) {
	s, p := start(t)
	p.SetRule(on("INCR", Action{Hold: make(chan struct{})}))
	c := dial(t, p)
	c.send("INCR", "n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx, "INCR", 1); err != nil {
		t.Fatal(err)
	}
	p.Close() // returns only when no goroutine is left
	p.Close()
	c.wantEnd()
	if n := counter(s, "n"); n != "" {
		t.Errorf("counter %q", n)
	}
}
