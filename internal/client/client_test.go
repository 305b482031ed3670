package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is a request as the server saw it.
type asked struct {
	method, uri string
	form        url.Values
	header      http.Header
}

// serveOnce answers every request alike and tells of the last one.
func serveOnce(t *testing.T, status int, contentType, body string) (*Client, func() asked) {
	t.Helper()
	var last asked
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		form, err := url.ParseQuery(string(content))
		if err != nil {
			t.Errorf("the body is no form: %v", err)
		}
		last = asked{r.Method, r.RequestURI, form, r.Header}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return newClient(t, Config{URL: server.URL}), func() asked { return last }
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]address{
		"http://127.0.0.1:5625":    {"http://127.0.0.1:5625", "127.0.0.1:5625", "tcp", "127.0.0.1:5625", true},
		"http://localhost:5625/":   {"http://localhost:5625", "localhost:5625", "tcp", "localhost:5625", true},
		"http://[::1]:5625":        {"http://[::1]:5625", "[::1]:5625", "tcp", "[::1]:5625", true},
		"http://locks":             {"http://locks", "locks", "tcp", "locks:80", false},
		"http://10.1.2.3:5625":     {"http://10.1.2.3:5625", "10.1.2.3:5625", "tcp", "10.1.2.3:5625", false},
		"unix:///run/ls/api.sock":  {"unix:///run/ls/api.sock", "localhost", "unix", "/run/ls/api.sock", true},
		"unix:///run/a%20dir/sock": {"unix:///run/a dir/sock", "localhost", "unix", "/run/a dir/sock", true},
	} {
		if got, err := parseAddress(text); err != nil || got != want {
			t.Errorf("%s: %+v, error %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"127.0.0.1:5625":            "http://host:port",
		"localhost:5625":            "scheme is missing",
		"https://localhost:5625":    "no TLS",
		"http://":                   "http://host:port",
		"http://localhost:5625/x":   "without a path",
		"http://localhost:5625?a=b": "http://host:port",
		"unix://relative/sock":      "absolute path",
		"unix:///":                  "absolute path",
		"unix:/":                    "absolute path",
		"redis://localhost:6379":    "http://host:port",
	} {
		if _, err := parseAddress(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
	const secret = "hunter2hunter2"
	for _, text := range []string{"http://user:" + secret + "@localhost:5625", "http://" + secret + "@\x00"} {
		if _, err := parseAddress(text); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells the password or is none: %v", err)
		}
	}
}

func TestEveryParameterReachesTheSidecarAsItWasGiven(t *testing.T) {
	const grant = `{"key":"k","fencing_token":7}`
	for name, tt := range map[string]struct {
		ask  func(*Client) error
		want string
		form string
	}{
		"all defaults": {func(c *Client) error { _, err := c.Acquire(t.Context(), "k", Request{}); return err }, "POST /locks/k", ""},
		"everything": {func(c *Client) error {
			_, err := c.Acquire(t.Context(), "a/b?c%d", Request{
				TTL: new(90 * time.Second), Wait: new(time.Duration(0)), MaxHold: new(time.Hour), MinHold: new(1500 * time.Millisecond),
				Owner: "w&1", Note: "a\xffb", NoRenew: true,
			})
			return err
		}, "POST /locks/a/b%3Fc%25d", "max_hold=1h0m0s&min_hold=1.5s&note=a%FFb&owner=w%261&renew=false&ttl=1m30s&wait=0s"},
		"get":  {func(c *Client) error { _, err := c.Get(t.Context(), "k", Handle{7, "w"}); return err }, "GET /locks/k?fencing_token=7&owner=w", ""},
		"any":  {func(c *Client) error { _, err := c.Get(t.Context(), "k", Handle{}); return err }, "GET /locks/k", ""},
		"list": {func(c *Client) error { _, err := c.List(t.Context()); return err }, "GET /locks", ""},
		"extend": {func(c *Client) error {
			_, err := c.Extend(t.Context(), "k", Handle{7, ""}, Changes{new(time.Second), new(time.Duration(0)), new("")})
			return err
		}, "PATCH /locks/k", "fencing_token=7&max_hold=0s&note=&ttl=1s"},
		"release": {func(c *Client) error {
			return c.Release(t.Context(), "k", Handle{7, "w"}, ReleaseOptions{Force: true, FreeNow: true})
		}, "DELETE /locks/k?fencing_token=7&force=true&min_hold=0&owner=w", ""},
		"release of an owner's": {func(c *Client) error { _, err := c.ReleaseWhere(t.Context(), "w", false); return err }, "DELETE /locks?owner=w", ""},
		"release of all":        {func(c *Client) error { _, err := c.ReleaseWhere(t.Context(), "", true); return err }, "DELETE /locks?all=true", ""},
		"drain":                 {func(c *Client) error { return c.Drain(t.Context()) }, "POST /drain", ""},
		"quit":                  {func(c *Client) error { return c.Quit(t.Context()) }, "POST /quit", ""},
		"status":                {func(c *Client) error { _, err := c.Status(t.Context()); return err }, "GET /", ""},
	} {
		c, last := serveOnce(t, http.StatusCreated, "application/json", grant)
		if err := tt.ask(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := last()
		if line := got.method + " " + got.uri; line != tt.want || got.form.Encode() != tt.form {
			t.Errorf("%s:\n got %s with %s\nwant %s with %s", name, line, got.form.Encode(), tt.want, tt.form)
		}
		if got.header.Get("Authorization") != "" {
			t.Errorf("%s: a token from nowhere", name)
		}
	}
}

func TestARefusalTellsAllThatTheSidecarSaid(t *testing.T) {
	const body = `{"type":"x#held","title":"the lock is held","status":409,"code":"held","state":"held",
		"holder":{"pod":"ns/pod-1","since":"2026-01-02T03:04:05.678Z","note":"nightly"},"expires_in_ms":1500,"queue_length":2,"held_here":true}`
	c, _ := serveOnce(t, http.StatusConflict, "application/problem+json; charset=utf-8", body)
	_, err := c.Acquire(t.Context(), "k", Request{})
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v", err)
	}
	if refused.Status != 409 || refused.Code != "held" || refused.Error() != "the lock is held" || !refused.HeldHere ||
		refused.Holder.Pod != "ns/pod-1" || refused.Holder.Note != "nightly" || refused.Holder.Since.UnixMilli() != 1767323045678 ||
		*refused.ExpiresInMS != 1500 || *refused.QueueLength != 2 || string(refused.Raw) != body {
		t.Errorf("%+v", refused)
	}
}

func TestWhatIsNoLocksidecarIsToldAsSuch(t *testing.T) {
	c, _ := serveOnce(t, http.StatusNotFound, "text/html", "<html>nginx</html>")
	_, err := c.Get(t.Context(), "k", Handle{})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != "" || refused.Status != 404 || !strings.Contains(err.Error(), "no locksidecar") {
		t.Errorf("a page of somebody else's: %v", err)
	}
	c, _ = serveOnce(t, http.StatusOK, "text/html", "<html>hello</html>")
	_, err = c.Get(t.Context(), "k", Handle{})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !unreachable.Asked {
		t.Errorf("a page of somebody else's with 200: %v", err)
	}
}

func TestNoRedirectIsFollowedAndNoProxyIsAsked(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("somebody else was asked")
	}))
	defer elsewhere.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, elsewhere.URL)
	}
	// Go asks no proxy for loopback addresses, whatever the environment says;
	// an address that is none shows that we do not ask either. To a multicast
	// address nobody can connect, and no name server is asked for it.
	c := newClient(t, Config{URL: "http://224.0.0.1:1"})
	if _, err := c.List(t.Context()); err == nil {
		t.Error("an answer from nowhere")
	}
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	c = newClient(t, Config{URL: server.URL})
	var refused *RefusedError
	if _, err := c.List(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusTemporaryRedirect {
		t.Errorf("error %v", err)
	}
}

func TestTheTokenIsReadForEachRequestAndNeverTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	server, last := serveOnce(t, http.StatusOK, "application/json", "{}")
	c := newClient(t, Config{URL: server.URL(), TokenFile: path})
	for content, want := range map[string]string{
		"first-token\n": "Bearer first-token", "second token\r\n": "Bearer second token", "third": "Bearer third",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := last().header.Get("Authorization"); got != want {
			t.Errorf("%q was sent, want %q", got, want)
		}
	}
	const secret = "hunter2hunter2"
	for _, content := range []string{"", "\n", secret + "\n" + secret, secret + "\x00", strings.Repeat(secret, 1<<14)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.List(t.Context())
		var unusable *TokenError
		if !errors.As(err, &unusable) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), path) {
			t.Errorf("of %d bytes: error %.200v", len(content), err)
		}
	}
	c = newClient(t, Config{URL: server.URL(), TokenFile: path + "-missing"})
	if _, err := c.List(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestASidecarThatIsNotThereWasCertainlyNotAsked(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	listener.Close()
	for _, at := range []string{nobody, "unix://" + filepath.Join(t.TempDir(), "none")} {
		c := newClient(t, Config{URL: at})
		_, err := c.Acquire(t.Context(), "k", Request{})
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Asked || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestAnAnswerThatIsCutShortMayHaveBeenCarriedOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"key":"k"`)
	}))
	defer server.Close()
	c := newClient(t, Config{URL: server.URL})
	var unreachable *UnreachableError
	if _, err := c.Acquire(t.Context(), "k", Request{}); !errors.As(err, &unreachable) || !unreachable.Asked {
		t.Errorf("error %v", err)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	enough, gone := errors.New("enough"), make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		cancel(enough)
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	c := newClient(t, Config{URL: server.URL})
	if _, err := c.Acquire(ctx, "k", Request{Wait: new(time.Hour)}); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	<-gone // the sidecar has heard of it
}

func TestValidityIsJudgedByOurClock(t *testing.T) {
	const ms = locker.Instant(time.Millisecond)
	now := 1000 * ms
	for name, tt := range map[string]struct {
		url    string
		v      Validity
		waited bool
		want   locker.Instant
	}{
		"told at once":                             {"http://127.0.0.1:1", Validity{500, 1500}, false, 1500 * ms},
		"delayed on this machine":                  {"http://127.0.0.1:1", Validity{500, 1200}, true, 1200 * ms},
		"its boot-time clock is another, ahead":    {"http://127.0.0.1:1", Validity{500, 99000}, false, 1500 * ms},
		"its boot-time clock is another, behind":   {"http://127.0.0.1:1", Validity{500, 3}, false, 3 * ms},
		"from another machine, with another clock": {"http://10.0.0.1:1", Validity{500, 3}, false, 1500 * ms},
		"without a boot-time":                      {"unix:///s", Validity{500, 0}, false, 1500 * ms},
	} {
		c := newClient(t, Config{URL: tt.url, Clock: func() locker.Instant { return now }})
		if got := c.validUntil(tt.v, now); got != tt.want {
			t.Errorf("%s: until %d ms, want %d ms", name, got.Milliseconds(), tt.want.Milliseconds())
		}
	}
}

func TestAGrantIsValidFromBeforeTheRequestWasSentUnlessItHadToWait(t *testing.T) {
	var now locker.Instant
	clock := func() locker.Instant { now = now.Add(100 * time.Millisecond); return now }
	server, _ := serveOnce(t, http.StatusOK, "application/json", `{"valid_for_ms":1000,"fencing_token":9007199254740991}`)
	c := newClient(t, Config{URL: server.URL(), Clock: clock})
	g, err := c.Acquire(t.Context(), "k", Request{})
	if err != nil || g.ValidUntil.Milliseconds() != 1100 || !g.Repeated || g.FencingToken != 9007199254740991 {
		t.Errorf("%+v, error %v", g, err)
	}
	now = 0
	g, err = c.Acquire(t.Context(), "k", Request{Wait: new(time.Minute)})
	if err != nil || g.ValidUntil.Milliseconds() != 1200 {
		t.Errorf("after a wait: until %d ms, error %v", g.ValidUntil.Milliseconds(), err)
	}
}
