package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestOnlyKnownHostsAreServed(t *testing.T) {
	for host, admitted := range map[string]bool{
		"localhost": true, "localhost:5625": true, "localhost:1": true, "LOCALHOST": true,
		"127.0.0.1": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:5625": true,
		"locks.example": true, "locks.example:443": true,
		"": false, "evil.example": false, "localhost.evil.example": false, "localhost.": false,
		"127.0.0.2": false, "127.0.0.1.nip.io": false, "127.1": false, "0.0.0.0": false, "::1": false,
		"[::1": false, "[::1]x": false, "[::1]:x": false, "localhost:80:80": false, "localhost:8x": false,
		"localhost@evil.example": false, ":5625": false, "[]": false, "[::ffff:127.0.0.1]": false,
	} {
		locks := newFakeLocks()
		response := do(t, newAPI(testConfig(locks)), "POST", "/locks/k", "", "Host", host)
		if admitted {
			if response.StatusCode != http.StatusCreated {
				t.Errorf("host %q: status %d", host, response.StatusCode)
			}
			continue
		}
		if code, _ := codeOf(t, response); response.StatusCode != 403 || code != "forbidden_host" || locks.calls.Load() != 0 {
			t.Errorf("host %q: %d %s", host, response.StatusCode, code)
		}
	}
}

func TestAnyHostWillDoOverAUnixSocket(t *testing.T) {
	_, address := serve(t, "unix", testConfig(newFakeLocks()))
	c := dial(t, "unix", address)
	c.send("GET /locks HTTP/1.1\r\nHost: sidecar\r\n\r\n")
	c.answerStatus(http.StatusOK)
	tcp, tcpAddress := serve(t, "tcp", testConfig(newFakeLocks()))
	_ = tcp
	d := dial(t, "tcp", tcpAddress)
	d.send("GET /locks HTTP/1.1\r\nHost: sidecar\r\n\r\n")
	d.answerStatus(http.StatusForbidden)
}

func TestBrowsersOnOtherPagesAreRefused(t *testing.T) {
	for _, test := range []struct {
		method, name, value string
		status              int
	}{
		{"POST", "Sec-Fetch-Site", "cross-site", 403},
		{"POST", "Sec-Fetch-Site", "same-site", 403},
		{"DELETE", "Sec-Fetch-Site", "cross-site", 403},
		{"POST", "Origin", "https://evil.example", 403},
		{"POST", "Origin", "null", 403},
		{"POST", "Sec-Fetch-Site", "same-origin", 201},
		{"POST", "Origin", "http://localhost:5625", 201},
		{"GET", "Sec-Fetch-Site", "cross-site", 404}, // changes nothing
	} {
		locks := newFakeLocks()
		response := do(t, newAPI(testConfig(locks)), test.method, "/locks/k", "", test.name, test.value)
		if response.StatusCode != test.status || (test.status == 403 && locks.calls.Load() != 0) {
			t.Errorf("%s with %s %s: status %d", test.method, test.name, test.value, response.StatusCode)
		}
	}
}

func TestTheTokenIsAskedForAndReadAnew(t *testing.T) {
	locks := newFakeLocks()
	cfg := testConfig(locks)
	token, tokenErr := "s3cret", error(nil)
	cfg.Token = func() (string, error) { return token, tokenErr }
	h := newAPI(cfg)
	status := func(value string) int {
		t.Helper()
		response := do(t, h, "GET", "/locks", "", "Authorization", value)
		if response.StatusCode == 401 && response.Header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
		if body := bodyOf(t, response); strings.Contains(body, "s3cret") || strings.Contains(body, "rotated") {
			t.Error("the token is in an answer")
		}
		return response.StatusCode
	}
	for value, want := range map[string]int{
		"Bearer s3cret": 200, "bearer s3cret": 200, "Bearer  s3cret ": 200,
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer wrong": 401, "Bearer s3cret2": 401, "Basic s3cret": 401, "s3cret": 401, "Bearer S3CRET": 401,
	} {
		if got := status(value); got != want {
			t.Errorf("%q: status %d, want %d", value, got, want)
		}
	}
	token = "rotated"
	if status("Bearer s3cret") != 401 || status("Bearer rotated") != 200 {
		t.Error("a rotated token does not count at once")
	}
	token = ""
	if got := status("Bearer "); got != 503 {
		t.Errorf("an empty token file: status %d", got)
	}
	token, tokenErr = "x", errors.New("no such file")
	if got := status("Bearer x"); got != 503 {
		t.Errorf("an unreadable token file: status %d", got)
	}
}

func TestATokenGivenTwiceIsRefused(t *testing.T) {
	g := gate{token: func() (string, error) { return "a", nil }}
	if g.authorize([]string{"Bearer a", "Bearer a"}) == nil {
		t.Error("admitted")
	}
}
