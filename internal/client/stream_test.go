package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// streaming serves one stream: it sends what comes from words until that is
// closed. It closes asked once the request is there, and gone once the caller
// has hung up.
func streaming(t *testing.T, cfg Config) (c *Client, words chan string, gone, asked chan struct{}) {
	t.Helper()
	words, gone, asked = make(chan string, 100), make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		_, _ = io.ReadAll(r.Body)
		close(asked)
		started := false
		for {
			select {
			case word, ok := <-words:
				if !ok {
					return
				}
				if !started {
					w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
					w.WriteHeader(http.StatusCreated)
					started = true
				}
				_, _ = io.WriteString(w, word)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	cfg.URL = server.URL
	return newClient(t, cfg), words, gone, asked
}

func event(kind, data string) string { return "event: " + kind + "\ndata: " + data + "\n\n" }

const heldEvent = "event: held\ndata: {\"key\":\"k\",\"state\":\"held\",\"fencing_token\":7,\"valid_for_ms\":1000,\"valid_until_boottime_ms\":1500}\n\n"

func TestABoundStreamTellsOfItsGrantAndOfWhatBecomesOfIt(t *testing.T) {
	const ms = locker.Instant(time.Millisecond)
	c, words, gone, _ := streaming(t, Config{Clock: func() locker.Instant { return 1000 * ms }})
	words <- ":\n\n"
	words <- heldEvent
	s, err := c.Bind(t.Context(), "k", Request{Wait: new(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Grant.Key != "k" || s.Grant.FencingToken != 7 || s.Grant.ValidUntil != 1500*ms || s.Grant.Repeated {
		t.Errorf("the grant: %+v", s.Grant)
	}
	words <- event("renewed", `{"valid_for_ms":800,"valid_until_boottime_ms":1800}`)
	words <- event("at_risk", `{"valid_for_ms":300,"valid_until_boottime_ms":1290}`)
	words <- event("lost", `{"fencing_token":7,"cause":"taken","lost_at":"2026-01-02T03:04:05Z","valid_for_ms":0}`)
	close(words)
	var got []string
	for {
		e, err := s.Next(t.Context())
		if err != nil {
			if !errors.Is(err, ErrStreamEnded) {
				t.Errorf("the stream ends with %v", err)
			}
			break
		}
		got = append(got, fmt.Sprintf("%s %d %d %s", e.Kind, e.ValidUntil.Milliseconds(), e.FencingToken, e.Cause))
	}
	want := []string{"renewed 1800 0 ", "at_risk 1290 0 ", "lost 1000 7 taken"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrStreamEnded) {
		t.Errorf("after its end: %v", err)
	}
	<-gone
}

func TestCloseHangsUpAtOnceAndWakesNext(t *testing.T) {
	c, words, gone, _ := streaming(t, Config{})
	words <- heldEvent
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Bind(ctx, "k", Request{})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // has no hold on the stream any more
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := s.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next has ended with %v", err)
	}
	woken := make(chan error)
	go func() { _, err := s.Next(context.Background()); woken <- err }()
	s.Close()
	if err := <-woken; !errors.Is(err, ErrStreamEnded) {
		t.Errorf("Next has ended with %v", err)
	}
	<-gone
	s.Close()
}

func TestCloseDoesNotWaitForEventsThatNobodyReads(t *testing.T) {
	c, words, gone, _ := streaming(t, Config{})
	words <- heldEvent
	for range 50 {
		words <- event("renewed", `{"valid_for_ms":800}`)
	}
	s, err := c.Bind(t.Context(), "k", Request{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	<-gone
}

func TestWhatIsNoGrantIsNoStream(t *testing.T) {
	for name, tt := range map[string]struct {
		status      int
		contentType string
		body        string
		check       func(error) bool
	}{
		"held by another": {409, "application/problem+json", `{"code":"held","title":"the lock is held"}`, func(err error) bool {
			var refused *RefusedError
			return errors.As(err, &refused) && refused.Code == "held"
		}},
		"no stream": {201, "application/json", `{"key":"k"}`, func(err error) bool {
			var unreachable *UnreachableError
			return errors.As(err, &unreachable) && unreachable.Asked
		}},
		"cut short": {201, "text/event-stream", strings.TrimSuffix(heldEvent, "\n"), func(err error) bool {
			return errors.Is(err, ErrStreamEnded)
		}},
		"lost at once": {200, "text/event-stream", event("lost", `{"cause":"gone"}`), func(err error) bool {
			return errors.Is(err, ErrStreamEnded)
		}},
		"not JSON": {200, "text/event-stream", event("held", `what`), func(err error) bool {
			return errors.Is(err, ErrStreamEnded)
		}},
	} {
		c, _ := serveOnce(t, tt.status, tt.contentType, tt.body)
		if s, err := c.Bind(t.Context(), "k", Request{}); err == nil || !tt.check(err) {
			t.Errorf("%s: stream %v, error %v", name, s, err)
		}
	}
}

func TestAWaitForAStreamEndsWithItsContext(t *testing.T) {
	for name, first := range map[string]string{"before the answer": "", "before the first event": ": soon\n\n"} {
		c, words, gone, asked := streaming(t, Config{})
		if first != "" {
			words <- first
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-asked; cancel(enough) }()
		if s, err := c.Bind(ctx, "k", Request{Wait: new(time.Hour)}); !errors.Is(err, enough) {
			t.Errorf("%s: stream %v, error %v", name, s, err)
		}
		<-gone
	}
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for text, want := range map[string]string{
		"event: a\ndata: 1\n\n":                         "a=1;",
		"event:a\r\ndata:1\r\n\r\n":                     "a=1;",
		"data: 1\ndata:\ndata:  2\n\n":                  "message=1\n\n 2;",
		": c\nid: 7\nretry: 3\nevent: a\ndata: 1\n\n":   "a=1;",
		"event: a\n\ndata: 1\n\n":                       "message=1;",
		"\n\n: c\n\n\nevent: a\ndata: " + long + "\n\n": "a=" + long + ";",
		"event: a\ndata: 1\n":                           "",
		"event: a\ndata: 1":                             "",
		"data\n\n":                                      "message=;",
	} {
		r := bufio.NewReaderSize(strings.NewReader(text), 16)
		var got strings.Builder
		for {
			kind, data, err := readEvent(r)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%.60q: %v", text, err)
				}
				break
			}
			fmt.Fprintf(&got, "%s=%s;", kind, data)
		}
		if got.String() != want {
			t.Errorf("%.60q: got %.60q, want %.60q", text, got.String(), want)
		}
	}
	for _, endless := range []string{strings.Repeat("x", 1<<20), strings.Repeat("data: x\n", 1<<17)} {
		if _, _, err := readEvent(bufio.NewReader(strings.NewReader(endless))); !errors.Is(err, errEventTooLong) {
			t.Errorf("something endless: %v", err)
		}
	}
	comments := strings.Repeat(": a comment every ten seconds\n\n", 1<<14) + "data: 1\n\n"
	if _, data, err := readEvent(bufio.NewReader(strings.NewReader(comments))); err != nil || string(data) != "1" {
		t.Errorf("after many comments: %q, error %v", data, err)
	}
}
