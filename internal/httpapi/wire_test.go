package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// readAll reads the connection to its end and returns the statuses of the
// answers on it.
func (c *client) readAll() (statuses []int, bodies string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		response, err := http.ReadResponse(c.r, nil)
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				c.t.Fatal("the connection was not closed")
			}
			return statuses, bodies
		}
		body, _ := io.ReadAll(response.Body)
		statuses, bodies = append(statuses, response.StatusCode), bodies+string(body)
	}
}

const hidden = "POST /locks/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestSmuggledRequestsAreRefusedAndTheConnectionCloses(t *testing.T) {
	head := "POST /locks/k HTTP/1.1\r\nHost: localhost\r\n"
	for name, request := range map[string]string{
		"length and encoding":          head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"encoding and length":          head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
		"length, encoding, odd case":   head + "cOnTeNt-LeNgTh: 4\r\ntransfer-ENCODING: Chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths that differ":      head + "Content-Length: 0\r\nContent-Length: 54\r\n\r\n" + hidden,
		"two equal lengths":            head + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a list of lengths":            head + "Content-Length: 0, 0\r\n\r\n" + hidden,
		"signed length":                head + "Content-Length: +0\r\n\r\n" + hidden,
		"negative length":              head + "Content-Length: -1\r\n\r\n" + hidden,
		"hexadecimal length":           head + "Content-Length: 0x0\r\n\r\n" + hidden,
		"bare LF in the head":          "POST /locks/k HTTP/1.1\nHost: localhost\n\n" + hidden,
		"one bare LF":                  head + "X-A: b\nContent-Length: 0\r\n\r\n" + hidden,
		"bare LF ends the head":        head + "Content-Length: 0\r\n\n" + hidden,
		"folded header":                head + "X-A: b\r\n Content-Length: 54\r\n\r\n" + hidden,
		"folded length":                head + "Content-Length:\r\n 54\r\n\r\n" + hidden,
		"space before the colon":       head + "Content-Length : 54\r\n\r\n" + hidden,
		"space in a name":              head + "Content Length: 54\r\n\r\n" + hidden,
		"no name":                      head + ": 54\r\n\r\n" + hidden,
		"NUL in a header":              head + "X-A: \x00\r\n\r\n" + hidden,
		"bare CR in a header":          head + "X-A: b\rContent-Length: 54\r\n\r\n" + hidden,
		"two hosts":                    "POST /locks/k HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n" + hidden,
		"no host":                      "POST /locks/k HTTP/1.1\r\n\r\n" + hidden,
		"encoding in HTTP/1.0":         "POST /locks/k HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two encodings":                head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"unknown encoding":             head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"encoding list":                head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
		"bare LF in a chunk size":      head + "Transfer-Encoding: chunked\r\n\r\n7\nttl=30s\r\n0\r\n\r\n" + hidden,
		"chunk without its end":        head + "Transfer-Encoding: chunked\r\n\r\n7\r\nttl=30sX0\r\n\r\n" + hidden,
		"chunk size is no number":      head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nttl=30s\r\n0\r\n\r\n" + hidden,
		"chunk size too large":         head + "Transfer-Encoding: chunked\r\n\r\n10000000000000007\r\nttl=30s\r\n0\r\n\r\n" + hidden,
		"negative chunk size":          head + "Transfer-Encoding: chunked\r\n\r\n-7\r\nttl=30s\r\n0\r\n\r\n" + hidden,
		"length in a trailer":          head + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 54\r\n\r\n" + hidden,
		"HTTP/2 without TLS":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden,
		"no version":                   "POST /locks/k\r\n\r\n" + hidden,
		"unknown version":              "POST /locks/k HTTP/3.7\r\nHost: localhost\r\n\r\n" + hidden,
		"space in the target":          "POST /locks/k HTTP/1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
		"bad escape":                   "POST /locks/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
		"control character in target":  "POST /locks/\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
		"relative target":              "POST locks/k HTTP/1.1\r\nHost: localhost\r\n\r\n" + hidden,
		"body shorter than its length": head + "Content-Length: 100\r\n\r\nttl=30s",
		"folded line before the names": "POST /locks/k HTTP/1.1\r\n Host: localhost\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			locks := newFakeLocks()
			_, address := serve(t, "tcp", testConfig(locks))
			c := dial(t, "tcp", address)
			c.send(request)
			c.closeWrite()
			statuses, bodies := c.readAll()
			for _, status := range statuses {
				if status < 400 {
					t.Errorf("answered %d", status)
				}
			}
			if len(statuses) > 1 {
				t.Errorf("several answers: %v", statuses)
			}
			if n := locks.calls.Load(); n > 0 {
				t.Errorf("the locks were touched: %v %s", statuses, bodies)
			}
		})
	}
}

func TestNothingBehindAChunkedBodyIsExecuted(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	c.send(chunkedPost + hidden)
	c.closeWrite()
	statuses, _ := c.readAll()
	if len(statuses) > 1 || locks.calls.Load() > 1 {
		t.Errorf("answers %v, %d calls", statuses, locks.calls.Load())
	}
}

func TestAPlainChunkedBodyIsReadAndTheConnectionCloses(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	c.send(chunkedPost)
	if statuses, body := c.readAll(); len(statuses) != 1 || statuses[0] != 201 || !strings.Contains(body, `"ttl_ms":30000`) {
		t.Errorf("%v %s", statuses, body)
	}
}

func TestPipelinedRequestsWithLengthsAreServedInOrder(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	one := "POST /locks/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + formType + "\r\nContent-Length: 7\r\n\r\nttl=30s"
	c.send(fmt.Sprintf(one, "a") + fmt.Sprintf(one, "b") + "\r\n" + fmt.Sprintf(one, "c"))
	for _, key := range []string{"a", "b", "c"} {
		if body := c.answerStatus(201); !strings.Contains(body, `"key":"`+key+`"`) {
			t.Errorf("answer %s", body)
		}
	}
}

func TestOversizedRequestsAreRefused(t *testing.T) {
	big := strings.Repeat("x", 2<<20)
	head := "POST /locks/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + formType + "\r\n"
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"2 MB header":             {head + "X-A: " + big + "\r\n\r\n", 431},
		"1 MB key":                {"POST /locks/" + big[:1<<20] + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		"key above 512 bytes":     {"POST /locks/" + big[:600] + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414},
		"10 MB body":              {head + "Content-Length: 10485760\r\n\r\nnote=" + big[:1000], 413},
		"body above 4 KiB":        {head + "Content-Length: 5000\r\n\r\nnote=" + big[:4995], 413},
		"chunked body above 4 KB": {head + "Transfer-Encoding: chunked\r\n\r\n1388\r\n" + big[:5000] + "\r\n0\r\n\r\n", 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := newFakeLocks()
			_, address := serve(t, "tcp", testConfig(locks))
			c := dial(t, "tcp", address)
			go func() { _, _ = io.WriteString(c, test.request) }() // the server may close before it has read all
			response, _ := c.answer()
			if closes := test.status != 414; response.StatusCode != test.status || response.Close != closes || locks.calls.Load() != 0 {
				t.Errorf("status %d, closes %v", response.StatusCode, response.Close)
			}
		})
	}
}

func TestALargeBodyIsRefusedBeforeItIsSent(t *testing.T) {
	_, address := serve(t, "tcp", testConfig(newFakeLocks()))
	c := dial(t, "tcp", address)
	c.send("POST /locks/k HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10485760\r\n\r\n")
	c.answerStatus(413)
}

func TestAnExpectedContinueIsSent(t *testing.T) {
	_, address := serve(t, "tcp", testConfig(newFakeLocks()))
	c := dial(t, "tcp", address)
	c.send("POST /locks/k HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: " + formType + "\r\nContent-Length: 7\r\n\r\n")
	c.answerStatus(100)
	c.send("ttl=45s")
	if body := c.answerStatus(201); !strings.Contains(body, `"ttl_ms":45000`) {
		t.Errorf("answer %s", body)
	}
}

func TestOddMethodsAreRefusedAndOverridesIgnored(t *testing.T) {
	for _, test := range []struct{ method, target, allow string }{
		{"PUT", "/locks/k", "DELETE, GET, HEAD, PATCH, POST"},
		{"OPTIONS", "/locks/k", "DELETE, GET, HEAD, PATCH, POST"},
		{"TRACE", "/locks/k", "DELETE, GET, HEAD, PATCH, POST"},
		{"AAAA1", "/locks/k", "DELETE, GET, HEAD, PATCH, POST"},
		{"get", "/locks/k", "DELETE, GET, HEAD, PATCH, POST"},
		{"POST", "/locks", "DELETE, GET, HEAD"},
		{"POST", "/", "GET, HEAD"},
		{"GET", "/drain", "POST"},
		{"HEAD", "/quit", "POST"},
	} {
		locks := newFakeLocks()
		response := do(t, newAPI(testConfig(locks)), test.method, test.target, "",
			"X-HTTP-Method-Override", "POST", "X-Method-Override", "DELETE")
		if response.StatusCode != 405 || response.Header.Get("Allow") != test.allow || locks.calls.Load() != 0 {
			t.Errorf("%s %s: status %d, Allow %q", test.method, test.target, response.StatusCode, response.Header.Get("Allow"))
		}
	}
	for _, override := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		locks := newFakeLocks()
		response := do(t, newAPI(testConfig(locks)), "GET", "/locks/k", "", override, "DELETE")
		if response.StatusCode != 404 || locks.calls.Load() != 0 {
			t.Errorf("%s: status %d", override, response.StatusCode)
		}
	}
	for _, target := range []string{"/debug/pprof/heap", "/debug/vars", "/metrics", "/lock/k", "/drain/", "/favicon.ico"} {
		for _, method := range []string{"GET", "POST", "AAAA1"} {
			response := do(t, newAPI(testConfig(newFakeLocks())), method, target, "")
			if code, _ := codeOf(t, response); response.StatusCode != 404 || code != "not_found" {
				t.Errorf("%s %s: %d %s", method, target, response.StatusCode, code)
			}
		}
	}
}

func TestServerWideMethodsAreRefused(t *testing.T) {
	for _, request := range []string{
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"CONNECT localhost:5625 HTTP/1.1\r\nHost: localhost:5625\r\n\r\n",
	} {
		_, address := serve(t, "tcp", testConfig(newFakeLocks()))
		c := dial(t, "tcp", address)
		c.send(request)
		if response, _ := c.answer(); response.StatusCode < 400 {
			t.Errorf("%.10s: status %d", request, response.StatusCode)
		}
	}
}

func TestHeadAnswersWithoutABody(t *testing.T) {
	_, address := serve(t, "tcp", testConfig(newFakeLocks()))
	c := dial(t, "tcp", address)
	c.send("HEAD /locks/k HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	for _, want := range []int{404, 200} {
		response, err := http.ReadResponse(c.r, &http.Request{Method: "HEAD"})
		if err != nil || response.StatusCode != want || response.ContentLength <= 0 {
			t.Fatal(response, err)
		}
	}
	if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

func TestSlowHeadersAreCutOffAndOthersAreServed(t *testing.T) {
	s := New(testConfig(newFakeLocks()))
	s.http.ReadHeaderTimeout = 500 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	slow := dial(t, "tcp", l.Addr().String())
	slow.send("POST /locks/k HTTP/1.1\r\nHo")
	other := dial(t, "tcp", l.Addr().String())
	other.send(post)
	other.answerStatus(201)
	_ = slow.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, err := io.ReadAll(slow); err != nil || strings.Contains(string(answer), " 201 ") {
		t.Errorf("the slow caller reads %q and %v, want the end of the connection", answer, err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestConnectionsAboveTheLimitAreRefused(t *testing.T) {
	cfg := testConfig(newFakeLocks())
	cfg.MaxConnections = 2
	_, address := serve(t, "tcp", cfg)
	for range 2 {
		c := dial(t, "tcp", address)
		c.send(post)
		c.answerStatus(201)
	}
	third := dial(t, "tcp", address)
	response, _ := third.answer()
	if response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", response.StatusCode)
	}
}
