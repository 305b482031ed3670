package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestBytesInAKeyAreRefusedOrKeptExactly(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	w := p.wire()
	for what, target := range map[string]string{
		"invalid UTF-8": "%ff", "cut UTF-8": "a%d0", "overlong UTF-8": "%c0%af", "surrogate": "%ed%a0%80",
		"NUL": "a%00b", "CR and LF": "a%0d%0aSet-Cookie:%20x", "space": "a%20b", "tab": "a%09b", "DEL": "a%7f",
		"no-break space": "a%c2%a0b", "line separator": "a%e2%80%a8b", "braces": "%7ba%7d", "raw braces": "{a}",
		"leading #": "%23queue", "dots": "..", "encoded dots": "%2e%2e", "empty segment": "a//b", "nothing": "",
		"bad escape": "a%2", "too long": strings.Repeat("k", 513),
	} {
		a := w.ask(http.MethodPost, "/locks/"+target, "ttl=60s")
		switch {
		case a.Status == http.StatusRequestURITooLong && what == "too long":
		case a.Status != http.StatusBadRequest:
			t.Errorf("%s: %v", what, a)
		case a.Header.Get("Connection") == "close" || a.JSON.Code == "": // net/http's own refusal
			w = p.wire()
		case a.JSON.Code != "invalid_key":
			t.Errorf("%s: %v", what, a)
		}
	}
	if keys := redis.Keys("*"); len(keys) > 0 {
		t.Errorf("Redis has %q", keys)
	}

	for key, spellings := range map[string][]string{
		"a/b":     {"a/b", "a%2Fb", "a%2fb", "%61/b"},
		"ключ":    {"%D0%BA%D0%BB%D1%8E%D1%87", "ключ"},
		"é":       {"%C3%A9"},       // one code point
		"e\u0301": {"e%CC%81"},      // the same letter as two: another lock
		"a+b":     {"a+b", "a%2Bb"}, // no form: a plus is a plus
		"a%41":    {"a%2541"},       // decoded once
		"*?[x]":   {"*%3F[x]"},
	} {
		w.ask(http.MethodPost, "/locks/"+spellings[0], "ttl=60s&note=%27%22%3Cb%3E").Finally(t, http.StatusCreated, "held")
		if _, there := redis.Get("lock:" + key); !there {
			t.Errorf("%q is not in Redis under its bytes", key)
		}
		for _, spelling := range spellings {
			if a := w.ask(http.MethodGet, "/locks/"+spelling, ""); a.Status != http.StatusOK || !strings.Contains(a.Body, `"key":`) {
				t.Errorf("%q as %s: %v", key, spelling, a)
			}
		}
	}
	if held := p.listed()["held"]; held != 7 {
		t.Errorf("%d locks are held, want 7", held)
	}
}

// smuggled must never be carried out: it hides behind a request about whose end
// two parsers could disagree.
const smuggled = "POST /locks/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestNoSmuggledRequestIsCarriedOut(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	head := "POST /locks/k HTTP/1.1\r\nHost: localhost\r\n"
	for what, text := range map[string]string{
		"length and encoding":     head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"encoding and length":     head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"two lengths":             head + "Content-Length: 0\r\nContent-Length: 53\r\n\r\n",
		"two equal lengths":       head + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"signed length":           head + "Content-Length: +0\r\n\r\n",
		"bare LF":                 "POST /locks/k HTTP/1.1\nHost: localhost\n\n",
		"one bare LF":             head + "X-A: b\nContent-Length: 0\r\n\r\n",
		"folded header":           head + "X-A: b\r\n Content-Length: 53\r\n\r\n",
		"space before the colon":  head + "Content-Length : 53\r\n\r\n",
		"bare CR":                 head + "X-A: b\rContent-Length: 53\r\n\r\n",
		"two hosts":               head + "Host: localhost\r\n\r\n",
		"HTTP/1.0 and encoding":   "POST /locks/k HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"unknown encoding":        head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two encodings":           head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"bare LF in a chunk size": head + "Transfer-Encoding: chunked\r\n\r\n7\nttl=30s\r\n0\r\n\r\n",
		"chunk without its end":   head + "Transfer-Encoding: chunked\r\n\r\n7\r\nttl=30sX0\r\n\r\n",
		"chunk size no number":    head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nttl=30s\r\n0\r\n\r\n",
		"length in a trailer":     head + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 53\r\n\r\n",
		"body cut short":          head + "Content-Length: 400\r\n\r\nttl=30s&",
	} {
		w := p.wire()
		w.send(text + smuggled)
		w.endSending()
		statuses, bodies := w.rest()
		if len(statuses) > 1 || len(statuses) == 1 && statuses[0] < 400 {
			t.Errorf("%s: answered %v %s", what, statuses, bodies)
		}
		if keys := redis.Keys("*"); len(keys) > 0 {
			t.Fatalf("%s: Redis has %q", what, keys)
		}
	}

	// A plain chunked body is served, nothing behind it is.
	w := p.wire()
	w.send(head + "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nttl=30s\r\n0\r\n\r\n" + smuggled)
	if statuses, bodies := w.rest(); len(statuses) != 1 || statuses[0] != http.StatusCreated {
		t.Errorf("plain chunked body: %v %s", statuses, bodies)
	}
	if redis.PTTL("lock:smuggled") != redistest.NoKey {
		t.Error("what stood behind the chunked body was carried out")
	}
}

func TestOversizedRequestsAreRefusedWithoutBeingKeptInMemory(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	before := p.Metric("process_resident_memory_bytes")
	jsonHead := "POST /locks/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for what, c := range map[string]struct {
		text string
		want int
	}{
		"a header of 2 MB":      {"GET /locks/k HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"100,000 headers":       {"GET /locks/k HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"a key of 1 MB":         {request(http.MethodPost, "/locks/"+strings.Repeat("k", 1<<20), ""), http.StatusRequestHeaderFieldsTooLarge},
		"a key of 513 bytes":    {request(http.MethodPost, "/locks/"+strings.Repeat("k", 513), ""), http.StatusRequestURITooLong},
		"a body of 10 MB":       {jsonHead + "Content-Length: 10485760\r\n\r\n" + strings.Repeat(" ", 10<<20), http.StatusRequestEntityTooLarge},
		"a chunked one":         {jsonHead + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n", 2560) + "0\r\n\r\n", http.StatusRequestEntityTooLarge},
		"deep JSON":             {jsonHead + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(deep)) + deep, http.StatusBadRequest},
		"deep JSON as a value":  {jsonHead + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(deep)+8) + `{"ttl":` + deep + "}", http.StatusBadRequest},
		"a note of 257 letters": {request(http.MethodPost, "/locks/k", "note="+strings.Repeat("n", 257)), http.StatusBadRequest},
	} {
		for range 5 {
			w := p.wire()
			sent := make(chan struct{})
			go func() { // the process stops reading early
				defer close(sent)
				_, _ = w.Write([]byte(c.text))
			}()
			// A caller that is still sending may be reset before it reads.
			if a, err := w.read(); err == nil && a.Status != c.want {
				t.Errorf("%s: %v, want %d", what, a, c.want)
			} else if err != nil && len(c.text) < 1<<20 {
				t.Errorf("%s: %v", what, err)
			}
			w.Close()
			<-sent
		}
	}
	if grown := p.Metric("process_resident_memory_bytes") - before; grown > 40<<20 {
		t.Errorf("memory has grown by %.0f MB", grown/(1<<20))
	}
	if p.listed()["held"] != 0 {
		t.Error("a refused request has taken a lock")
	}
}

func TestOddMethodsAndOverridesChangeNothing(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	p.POST("k", "ttl=60s").Finally(t, http.StatusCreated, "held")
	for _, method := range []string{"PUT", "OPTIONS", "TRACE", "CONNECT", "LOCK", "UNLOCK", "PURGE", "post", "Delete", "X"} {
		w := p.wire()
		w.send(request(method, "/locks/k", ""))
		if a := w.answer(); a.Status != http.StatusMethodNotAllowed || a.Header.Get("Allow") == "" {
			t.Errorf("%s: %v with Allow %q", method, a, a.Header.Get("Allow"))
		}
	}
	for _, override := range []string{"X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE"} {
		w := p.wire()
		w.send("GET /locks/k?_method=DELETE HTTP/1.1\r\nHost: localhost\r\n" + override + "\r\n\r\n")
		if a := w.answer(); a.Status != http.StatusBadRequest {
			t.Errorf("%s in the query: %v", override, a)
		}
		w.send("GET /locks/k HTTP/1.1\r\nHost: localhost\r\n" + override + "\r\n\r\n")
		if a := w.answer(); a.Status != http.StatusOK {
			t.Errorf("%s: %v", override, a)
		}
	}
	res, err := p.client.Head(p.URL + "/locks/k")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d", res.StatusCode)
	}
	p.GET("k").Want(t, http.StatusOK, "held")
	if p.listed()["held"] != 1 {
		t.Errorf("the list has changed: %v", p.listed())
	}
}

func TestADurationThatCannotBeALeaseNeverReachesRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := on(t, redis)
	for _, ttl := range []string{
		`0`, `-1`, `1.5`, `5`, `"5"`, `9007199254740992`, `9223372036854775807`, `1e3`, `true`, `""`, `"0"`, `"0s"`, `"-1s"`,
		`"999ms"`, `"1.0005s"`, `"1000000us"x`, `"24h1ms"`, `"9223372036854775807ns"`, `"9999999999h"`, `"30"`, `"30 s"`, `"PT30S"`, `"1d"`, `[]`, `{}`, `"NaN"`, `"inf"`,
	} {
		r, err := http.NewRequest(http.MethodPost, p.URL+"/locks/k", strings.NewReader(`{"ttl":`+ttl+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		a := p.Do(r)
		malformed := strings.HasSuffix(ttl, "x") || ttl == "[]" || ttl == "{}"
		if a.Status != http.StatusBadRequest || !malformed && a.JSON.Code != "invalid_ttl" {
			t.Errorf("ttl %s: %v", ttl, a)
		}
	}
	if keys := redis.Keys("*"); len(keys) > 0 {
		t.Errorf("Redis has %q", keys)
	}
	for ttl, want := range map[string]time.Duration{"1s": time.Second, "1001ms": 1001 * time.Millisecond, "24h": 24 * time.Hour} {
		key := "good" + ttl
		told := p.POST(key, "ttl="+ttl).Finally(t, http.StatusCreated, "held")
		if pttl := redis.PTTL("lock:" + key); pttl > want || pttl < want-900*time.Millisecond {
			t.Errorf("ttl %s: PTTL is %v", ttl, pttl)
		}
		if valid := time.Duration(told.JSON.ValidForMS) * time.Millisecond; valid >= want {
			t.Errorf("ttl %s: valid for %v", ttl, valid)
		}
	}
}

func TestATakenLockAndABrokenStoreAndAMistakeHaveDifferentCodes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	holder, other := on(t, redis), on(t, redis)
	holder.POST("k", "ttl=60s", "note=the+report").Finally(t, http.StatusCreated, "held")
	taken := other.POST("k").Finally(t, http.StatusConflict, "held")
	if left := taken.JSON.ExpiresInMS; left <= 0 || left > 60_000 || taken.JSON.Holder == nil || taken.JSON.Holder.Note != "the report" {
		t.Errorf("the answer does not tell who has it and for how long: %v", taken)
	}
	other.POST("k", "ttl=5").Want(t, http.StatusBadRequest, "invalid_ttl")
	other.POST("a//b").Want(t, http.StatusBadRequest, "invalid_key")
	redis.Kill()
	eventually(t, 5*time.Second, "the store's absence is told", func() bool {
		a := other.POST("k")
		if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", a)
		}
		return a.Is(http.StatusServiceUnavailable, "store_unavailable")
	})
}

func TestNoPathIsCleanedByARedirect(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	w := p.wire()
	for target, want := range map[string]int{
		"/locks/./K": 400, "/locks/a/./b": 400, "/locks/a/../b": 400, "/locks//K": 400, "/locks/K/": 400, "/locks/": 400,
		"//locks/K": 404, "/./locks/K": 404, "/LOCKS/K": 404, "/locks": 405, "/locks?x": 405, "/drain/": 404,
	} {
		if a := w.ask(http.MethodPost, target, ""); a.Status != want || a.Header.Get("Location") != "" {
			t.Errorf("%s: %v, want %d", target, a, want)
		}
	}
	if states := p.listed(); len(states) > 0 {
		t.Errorf("locked by accident: %v", states)
	}
}

func TestNoDoorHasAProfiler(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}}.serve(t)
	for _, door := range []string{p.URL, p.Admin} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/vars", "/debug/requests"} {
			res, err := p.client.Get(door + path)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %d", path, res.StatusCode)
			}
		}
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dependency := range strings.Fields(string(out)) {
		if dependency == "net/http/pprof" {
			t.Errorf("%s is part of the binary", dependency)
		}
	}
}

func TestTheNumberOfSeriesDependsOnNoRequest(t *testing.T) {
	t.Parallel()
	p := launch{Args: []string{"dev"}, Env: []string{"LOG_LEVEL=info"}}.serve(t)
	series := func() (n int) {
		for line := range strings.Lines(p.Metrics()) {
			if strings.HasPrefix(line, "locksidecar_") {
				n++
			}
		}
		return n
	}
	before := series()
	// As many as there is time for; all 100,000 take a second or two without
	// the race detector.
	const abreast, keys, methods, ahead = 4, 25_000, 2_500, 50
	stop := time.Now().Add(3 * time.Second)
	var asked atomic.Int64
	var wg sync.WaitGroup
	for c := range abreast {
		w := p.wire()
		wg.Go(func() {
			for i := 0; i < keys && time.Now().Before(stop); i += ahead {
				var text strings.Builder
				for j := i; j < i+ahead; j++ {
					method := http.MethodGet
					if j%2 == 0 && j/2 < methods {
						method = fmt.Sprintf("M%d-%d", c, j)
					}
					text.WriteString(request(method, fmt.Sprintf("/locks/key-%d-%d", c, j), ""))
				}
				a, err := w.exchange(text.String())
				for range ahead - 1 {
					if err == nil {
						a, err = w.read()
					}
				}
				if err != nil || a.Status < 400 {
					t.Errorf("%v, %v", a, err)
					return
				}
				asked.Add(ahead)
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests", asked.Load())
	for i := range 200 {
		key := fmt.Sprintf("held-%d", i)
		p.POST(key, "owner="+key, "note="+key).Finally(t, http.StatusCreated, "held")
	}
	if after := series(); after != before || before == 0 {
		t.Errorf("%d series, %d before", after, before)
	}
	if page := p.Metrics(); strings.Contains(page, "held-") || strings.Contains(page, "key-") || strings.Contains(page, "M0-") {
		t.Error("a caller's words are on the metrics page")
	}
}
