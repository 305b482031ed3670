package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pb33f/libopenapi/datamodel/high/base"
	"github.com/pb33f/libopenapi/orderedmap"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// The program does what the document says, and the document says all that the
// program does: each answer is judged when it comes, and in the end everything
// that the document tells of must have been seen.
func TestTheProgramAnswersAsTheDocumentSays(t *testing.T) {
	d := load(t)
	seen := make(map[sight]bool)
	part := func(name string, walk func(w *walk), settings ...string) {
		t.Run(name, func(t *testing.T) { walk(newWalk(t, d, sidecar.Start(t, settings...), seen)) })
	}
	part("locks from memory", walkLocks)
	part("streams from memory", walkStreams)
	part("what comes before a route", walkGate)
	part("limits", walkLimits, "MAX_HELD=2", "MAX_WAITERS=1")
	part("status", walkStatus)
	part("process", walkProcess)
	part("shutdown", walkShutdown, "SHUTDOWN_MODE=release", "SHUTDOWN_GRACE=20s")
	part("examples of requests", walkExamples)
	t.Run("token", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		walkToken(newWalk(t, d, sidecar.Start(t, "API_TOKEN_FILE="+file), seen), file)
	})
	for name, walk := range map[string]func(*walk, *redistest.Server){
		"locks": func(w *walk, _ *redistest.Server) { walkLocks(w) }, "streams": func(w *walk, _ *redistest.Server) { walkStreams(w) },
		"losses": walkLosses, "others": walkOthers, "faults": walkFaults, "a server that hangs": walkFrozen, "a server that is gone": walkGone,
	} {
		t.Run(name+" from Redis", func(t *testing.T) {
			server := redistest.Start(t, "lua-time-limit 100")
			walk(newWalk(t, d, sidecar.Start(t, "REDIS_MODE=single", "REDIS_ADDRS="+server.Addr()), seen), server)
		})
	}
	t.Run("too few replicas", func(t *testing.T) {
		r := redistest.Config{}.StartReplicated(t, 1)
		p := sidecar.Start(t, "REDIS_MODE=single", "REDIS_ADDRS="+r.Servers[0].Addr(), "REDIS_MIN_REPLICAS=1")
		walkReplicas(newWalk(t, d, p, seen), r)
	})
	if t.Failed() {
		return
	}
	for _, s := range d.sights() {
		why := unprovoked(s)
		switch {
		case !seen[s] && why == "":
			t.Errorf("the document tells of %s %s %s %s, which was not seen", s.operation, s.status, s.kind, s.code)
		case seen[s] && why != "":
			t.Errorf("%s %s %s %s was seen, though %s", s.operation, s.status, s.kind, s.code, why)
		}
	}
	t.Logf("%d kinds of answers seen", len(seen))
}

// sights returns everything that the document tells of.
func (d *document) sights() (all []sight) {
	for _, op := range d.operations() {
		for status, response := range op.Responses.Codes.FromOldest() {
			if orderedmap.Len(response.Content) == 0 {
				all = append(all, sight{op.OperationId, status, "", ""})
			}
			for kind, media := range response.Content.FromOldest() {
				if kind != "application/problem+json" {
					all = append(all, sight{op.OperationId, status, kind, ""})
					continue
				}
				for _, code := range codes(media.Schema) {
					all = append(all, sight{op.OperationId, status, kind, code})
				}
			}
		}
	}
	return all
}

// codes returns the codes that the schema of a response allows.
func codes(proxy *base.SchemaProxy) (all []string) {
	schema := proxy.Schema()
	for name, code := range schema.Properties.FromOldest() {
		if name != "code" || code.IsReference() {
			continue
		}
		if c := code.Schema().Const; c != nil {
			all = append(all, c.Value)
		}
		for _, c := range code.Schema().Enum {
			all = append(all, c.Value)
		}
	}
	for _, inner := range slices.Concat(schema.AllOf, schema.OneOf) {
		all = append(all, codes(inner)...)
	}
	return all
}

// unprovoked says why the walk does not see something; "" for what it must see.
func unprovoked(s sight) string {
	switch {
	case s.status == "500":
		return "it would be a fault in the program"
	case s.status == "501":
		return "both backends can do everything"
	case s.code == "no_quorum", s.code == "store_recovering":
		return "it takes other topologies, which the tests of those rooms have"
	case s.code == "not_recorded":
		return "it takes a state directory that cannot be written"
	case s.operation == "extendLock" && s.code == "store_error":
		return "nothing that the store answers to a renewal is one"
	case s.operation == "getLive" && s.status == "503":
		return "it would be a fault in the program"
	case s.operation == "getStarted" && s.status == "503":
		return "the doors open in the same moment"
	case s.operation == "getMetrics" && s.status == "503":
		return "pages are made too fast for that"
	}
	return ""
}

// Every code that there is stands at some response of the document, and no
// other; a test beside the table of outcomes holds the schema Code to that.
func TestEveryCodeStandsAtAResponse(t *testing.T) {
	d := load(t)
	var used []string
	for _, s := range d.sights() {
		if s.code != "" {
			used = append(used, s.code)
		}
	}
	for _, response := range d.model.Components.Responses.FromOldest() {
		if media := at(response.Content, "application/problem+json"); media != nil {
			used = append(used, codes(media.Schema)...)
		}
	}
	var all []string
	for _, code := range d.component("Code").Schema().Enum {
		all = append(all, code.Value)
	}
	slices.Sort(used)
	slices.Sort(all)
	if used = slices.Compact(used); !slices.Equal(used, all) {
		t.Errorf("at the responses: %q\nin the schema: %q", used, all)
	}
}

func acquire(key, form string) call { return call{method: "POST", path: "/locks/" + key, form: form} }
func get(key, query string) call    { return call{method: "GET", path: "/locks/" + key + "?" + query} }
func extend(key, form string) call  { return call{method: "PATCH", path: "/locks/" + key, form: form} }
func release(key, form string) call { return call{method: "DELETE", path: "/locks/" + key, form: form} }

// walkLocks takes locks, keeps them and gives them back, in every way.
func walkLocks(w *walk) {
	held := w.expect("201", acquire("report", "owner=w1&ttl=30s&note=it%27s+mine"))
	plain := w.expect("200", call{method: "POST", path: "/locks/report", json: `{"owner":"w1","ttl":null,"renew":true}`, header: []string{"Accept", "text/plain"}})
	w.sameNames(acquire("report", ""), held, plain)
	w.expect("201", call{method: "POST", path: "/locks/plain?ttl=5s", header: []string{"Accept", "text/plain"}})
	w.expect("200", acquire("report", "owner=w1"))
	w.expect("409 held", acquire("report", "owner=w2"))
	w.expect("409 parameter_mismatch", acquire("report", "owner=w1&ttl=31s"))
	w.expect("409 wait_timeout", acquire("report", "owner=w2&wait=20ms"))
	w.expect("201", call{method: "POST", path: "/locks/cron%2Freport", spelled: "/locks/cron/report"})
	w.expect("200", get("cron%2Freport", ""))

	fence := fmt.Sprint("fencing_token=", w.fence(held))
	w.expect("200", get("report", fence))
	holding := w.expect("200", get("report", "owner=w1"))
	w.sameNames(get("report", ""), holding, w.expect("200", get("report", "owner=w1").with("Accept", "text/plain")))
	w.expect("200", call{method: "HEAD", path: "/locks/report?" + fence})
	w.expect("200", extend("report", "owner=w1"))
	w.expect("200", call{method: "PATCH", path: "/locks/report", json: `{"fencing_token":` + fmt.Sprint(w.fence(held)) + `,"ttl":"1m","max_hold":"2h","note":"nearly done"}`})
	w.expect("200", extend("report", "owner=w1&note=").with("Accept", "text/plain"))
	w.expect("409 owner_mismatch", get("report", "owner=w2"))
	w.expect("409 owner_mismatch", extend("report", "owner=w2"))
	w.expect("409 owner_mismatch", release("report", ""))
	w.expect("404 not_held", get("other", ""))
	w.expect("404 not_held", extend("other", ""))
	w.expect("404 not_held", release("other", ""))
	w.expect("404", call{method: "HEAD", path: "/locks/other"})

	// Somebody waits, twice, and gets it.
	next := w.later(acquire("report", "owner=w2&wait=10s"))
	sidecar.Eventually(w.t, "the list shows who waits", func() bool {
		return strings.Contains(string(w.expect("200", call{method: "GET", path: "/locks"}).body), `"waiting"`)
	})
	w.expect("409 owner_busy", acquire("report", "owner=w2&wait=10s"))
	w.expect("204", release("report", "owner=w1"))
	w.settle("201", next)
	w.expect("204", call{method: "DELETE", path: "/locks/report", json: `{"owner":"w2","min_hold":"0","force":false}`})

	// A minimum hold keeps the key taken by nobody.
	w.expect("201", acquire("cron", "min_hold=1h"))
	w.expect("204", release("cron", ""))
	if a := w.expect("404 not_held", get("cron", "")); !strings.Contains(string(a.body), `"state":"min_hold"`) {
		w.t.Errorf("after an early release: %s", a.body)
	}
	w.expect("409 held", acquire("cron", ""))

	// A lock that nobody extends is lost.
	w.expect("201", acquire("short", "ttl=1s&renew=false&owner=w3"))
	sidecar.Eventually(w.t, "the lock is lost", func() bool { return w.send(get("short", "owner=w3")).status == http.StatusGone })
	w.expect("410 lost", get("short", "owner=w3"))
	w.expect("410 lost", extend("short", "owner=w3"))
	w.expect("410", call{method: "HEAD", path: "/locks/short"})
	w.expect("200", call{method: "GET", path: "/locks"})
	lost := release("short", "owner=w3").with("Accept", "text/plain")
	w.expect("410", lost) // told once
	w.expect("201", acquire("short", "ttl=1s&max_hold=1s"))
	sidecar.Eventually(w.t, "the maximum hold is over", func() bool { return w.send(get("short", "")).status == http.StatusGone })
	once := release("short", "")
	once.once = true
	w.expect("410 lost", once)

	w.expect("201", acquire("a", "owner=w4"))
	w.expect("200", call{method: "DELETE", path: "/locks", form: "owner=w4"})
	w.expect("200", call{method: "DELETE", path: "/locks?all=true"})
	w.expect("400 invalid_parameter", call{method: "DELETE", path: "/locks"})
	w.expect("200", call{method: "HEAD", path: "/locks"})
	walkMistakes(w)

	// Half a close is leaving.
	w.expect("201", acquire("report", ""))
	text := "POST /locks/report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\nwait=9s"
	w.raw("400 caller_gone", acquire("report", "wait=9s"), text, true)
	w.expect("204", release("report", ""))
}

// walkMistakes makes each mistake that a parameter can have. The document
// refuses all of them but the limits that are settings.
func walkMistakes(w *walk) {
	wrong := func(outcome string, c call) {
		w.t.Helper()
		c.unfit = true
		w.expect(outcome, c)
	}
	for _, mistake := range []string{
		"ttl=30", "wait=soon", "owner=", "bind=both", "renew=yes", "max_hold=-1s", "min_hold=5", "note=a%0Ab",
	} {
		name, _, _ := strings.Cut(mistake, "=")
		wrong("400 invalid_"+name, acquire("k", mistake))
		wrong("400 invalid_"+name, call{method: "POST", path: "/locks/k?" + mistake})
	}
	wrong("400 invalid_bind", acquire("k", "bind=connection&renew=false"))
	wrong("400 invalid_ttl", call{method: "POST", path: "/locks/k", json: `{"ttl":30}`})
	free := acquire("k", "ttl=999h")
	free.free = true
	w.expect("400 invalid_ttl", free)
	free.form = "owner=shop/web-0"
	w.expect("400 invalid_owner", free)
	for _, mistake := range []string{"ttl=1", "max_hold=soon", "note=a%00b", "owner=", "fencing_token=1.5"} {
		name, _, _ := strings.Cut(mistake, "=")
		wrong("400 invalid_"+name, extend("k", mistake))
	}
	for _, mistake := range []string{"min_hold=1s", "force=1", "owner=", "fencing_token=0"} {
		name, _, _ := strings.Cut(mistake, "=")
		wrong("400 invalid_"+name, release("k", mistake))
	}
	wrong("400 invalid_fencing_token", get("k", "fencing_token=none"))
	wrong("400 invalid_owner", get("k", "owner="))
	wrong("400 invalid_all", call{method: "DELETE", path: "/locks", form: "all=1"})
	wrong("400 invalid_owner", call{method: "DELETE", path: "/locks?owner="})
	for _, c := range []call{acquire("%20", ""), get("a%7Bb%7D", ""), extend("%23grant", ""), release("a%09b", "")} {
		wrong("400 invalid_key", c)
	}
	for _, key := range []string{"a%2F%2Fb", "..%2Fa", "a%2F."} {
		c := get(key, "")
		c.free = true
		w.expect("400 invalid_key", c)
	}
	if a := w.probe("GET", w.process.URL+"/locks/"); a.outcome() != "400 invalid_key" { // an empty key is in no document
		w.t.Errorf("an empty key: %s %s", a.outcome(), a.body)
	}
	for _, c := range []call{acquire("", ""), get("", ""), extend("", ""), release("", "")} {
		c.path = "/locks/" + strings.Repeat("k", 513)
		wrong("414 invalid_key", c)
	}
}

// walkStreams follows locks by events.
func walkStreams(w *walk) {
	bind := acquire("k", "bind=connection&ttl=5s&owner=w1")
	bound := w.stream(201, bind)
	if data := bound.await("held"); data["bind"] != "connection" {
		w.t.Errorf("told %v", data)
	}
	bound.await("renewed")
	again := w.stream(200, bind)
	again.await("held")
	follower := w.stream(200, get("k", "owner=w1").with("Accept", "text/event-stream"))
	follower.await("held")
	w.expect("204", release("k", "owner=w1"))
	for _, s := range []*stream{bound, again, follower} {
		s.await("released")
		s.ended()
	}

	bound = w.stream(201, acquire("k", "bind=connection&wait=1s"))
	bound.await("held")
	bound.close()
	sidecar.Eventually(w.t, "the lock has ended with its connection", func() bool { return strings.Contains(string(w.send(get("k", "")).body), `"state":"free"`) })

	bound = w.stream(201, acquire("k", "bind=connection&ttl=5s&max_hold=1s"))
	if data := bound.await("lost"); data["cause"] != "max_hold" {
		w.t.Errorf("told %v", data)
	}
	bound.ended()
	bound = w.stream(201, acquire("k", "bind=connection"))
	w.expect("204", call{method: "POST", path: "/drain"})
	bound.await("draining")
	bound.close()
}

// walkGate makes the mistakes that do not depend on what is asked for.
func walkGate(w *walk) {
	for _, c := range w.oneOfEach() {
		code := func(status, code string) string {
			if c.method == http.MethodHead {
				return status
			}
			return status + " " + code
		}
		wrong := c
		wrong.unfit = true
		wrong.form = "note=" + strings.Repeat("a", 5000)
		w.expect(code("413", "body_too_large"), wrong)
		wrong.form = "x"
		w.expect(code("415", "unsupported_media_type"), wrong.with("Content-Type", "text/xml"))
		wrong.form, wrong.json = "", "{"
		w.expect(code("400", "invalid_body"), wrong)
		free := c
		free.free = true
		free.path += cmp.Or(map[bool]string{true: "&"}[strings.Contains(c.path, "?")], "?") + "unheard_of=1"
		w.expect(code("400", "invalid_parameter"), free)
		w.expect(code("403", "forbidden_host"), c.with("Host", "evil.example"))
		if c.method != http.MethodGet && c.method != http.MethodHead {
			w.expect(code("403", "cross_origin"), c.with("Origin", "https://evil.example"))
		}
		w.raw(code("400", "invalid_request"), c,
			c.method+" "+c.path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false)
	}
	w.checkComponent("HeaderTooLarge", w.rawly("GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 30000)+"\r\n\r\n", false))
}

// oneOfEach returns one call of each operation of the API's door.
func (w *walk) oneOfEach() []call {
	var calls []call
	for _, op := range w.document.operations() {
		if !op.admin {
			path := strings.Replace(op.path, "{key}", "gate", 1)
			if op.OperationId == "releaseLocks" {
				path += "?owner=nobody"
			}
			calls = append(calls, call{method: op.method, path: path})
		}
	}
	return calls
}

func walkToken(w *walk, file string) {
	for _, c := range w.oneOfEach() {
		w.token = ""
		a := w.send(c.with("Authorization", "Bearer wrong"))
		if a.status != http.StatusUnauthorized {
			w.t.Errorf("%s: %d", c, a.status)
		}
		if c.method != http.MethodHead {
			w.expect("401 unauthorized", c)
		}
	}
	w.token = "secret"
	w.expect("201", acquire("k", ""))
	if err := os.Remove(file); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range w.oneOfEach() {
		if a := w.send(c); a.status != http.StatusServiceUnavailable {
			w.t.Errorf("%s: %d", c, a.status)
		}
		if c.method != http.MethodHead {
			w.expect("503 token_unavailable", c)
		}
	}
}

func walkLimits(w *walk) {
	w.expect("201", acquire("a", ""))
	next := w.later(acquire("a", "wait=10s&owner=w1"))
	sidecar.Eventually(w.t, "one waits", func() bool {
		return strings.Contains(string(w.send(call{method: "GET", path: "/locks"}).body), `"waiting"`)
	})
	w.expect("429 too_many_waiters", acquire("a", "wait=10s&owner=w2"))
	w.expect("429 too_many_locks", acquire("b", ""))
	w.expect("204", release("a", ""))
	w.settle("201", next)
}

// walkStatus looks at the status page, at its data, and at its feed.
func walkStatus(w *walk) {
	page := call{method: "GET", path: "/"}
	w.expect("201", acquire("k", "owner=w1&note=mine"))
	w.expect("201", acquire("short", "ttl=1s&renew=false"))
	sidecar.Eventually(w.t, "a lock is lost", func() bool { return w.send(get("short", "")).status == http.StatusGone })
	next := w.later(acquire("k", "owner=w2&wait=10s"))
	sidecar.Eventually(w.t, "one waits", func() bool { return strings.Contains(string(w.expect("200", page).body), `"place":1`) })
	w.expect("200", call{method: "GET", path: "/?search=mine&limit=1"})
	w.expect("400 invalid_parameter", call{method: "GET", path: "/?limit=many", unfit: true})
	w.expect("400 invalid_parameter", call{method: "GET", path: "/?search=a%00", unfit: true})
	for _, method := range []string{"GET", "HEAD"} {
		page.method = method
		w.expect("200", page.with("Accept", "text/html"))
		w.expect("200", page.with("Accept", "application/json"))
	}
	page.method = "GET"
	events := page.with("Accept", "text/event-stream")
	elsewhere := events.with("Sec-Fetch-Site", "same-site")
	elsewhere.once = true // with another Accept it would be no feed
	w.expect("403 cross_origin", elsewhere)
	var feeds []*stream
	for range 16 {
		feeds = append(feeds, w.stream(200, events))
	}
	a := w.send(events)
	if a.outcome() != "429 too_many_feeds" {
		w.t.Errorf("one feed more: %s %s", a.outcome(), a.body)
	}
	plain := w.send(page.with("Accept", "text/event-stream, text/plain;q=0.9"))
	w.sameNames(page, a, plain)
	for _, s := range feeds {
		s.await("snapshot")
	}
	w.expect("204", release("k", "owner=w1"))
	w.settle("201", next)
	w.expect("202", call{method: "POST", path: "/quit"})
	for _, s := range feeds {
		s.await("end")
		s.ended()
	}
}

// walkProcess asks how the process is, and ends it.
func walkProcess(w *walk) {
	w.expect("200", call{method: "GET", path: "/"})
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/startupz"} {
		w.expect("200", call{method: "GET", path: path})
	}
	w.expect("204", call{method: "POST", path: "/drain"})
	w.expect("503 draining", acquire("k", ""))
	w.expect("503", call{method: "GET", path: "/readyz"})
	w.expect("200", call{method: "GET", path: "/"})
	w.expect("202", call{method: "POST", path: "/quit"})
	if code := w.process.WaitExit(); code != 0 {
		w.t.Errorf("exit code %d", code)
	}
}

func walkShutdown(w *walk) {
	w.expect("201", acquire("k", ""))
	w.process.Signal(syscall.SIGTERM)
	sidecar.Eventually(w.t, "it is not ready any more", func() bool {
		return w.send(call{method: "GET", path: "/readyz"}).status == http.StatusServiceUnavailable
	})
	w.expect("503 shutting_down", acquire("other", ""))
	w.expect("204", release("k", ""))
	if code := w.process.WaitExit(); code != 0 {
		w.t.Errorf("exit code %d", code)
	}
}

// walkExamples sends the document's own examples of requests, and compares what
// is answered with its examples of answers.
func walkExamples(w *walk) {
	for _, op := range w.document.operations() {
		if op.RequestBody == nil {
			continue
		}
		for kind, media := range op.RequestBody.Content.FromOldest() {
			for name, example := range media.Examples.FromOldest() {
				given := decode(w.t, example.Value).(map[string]any)
				key := "example-" + op.OperationId + "-" + name
				if op.OperationId != "acquireLock" {
					held := w.expect("201", acquire(key, "owner=w1&min_hold=1h"))
					if given["fencing_token"] != nil {
						given["fencing_token"] = w.fence(held)
					}
				}
				c := call{method: op.method, path: strings.Replace(op.path, "{key}", key, 1)}
				c.json, c.form = bodyOf(w.t, kind, given)
				if given["bind"] == "connection" {
					s := w.stream(201, c)
					s.await("held")
					s.close()
					continue
				}
				a := w.send(c)
				if a.status >= 300 {
					w.t.Errorf("example %s of %s: %s %s", name, op.OperationId, a.outcome(), a.body)
				}
				w.likeExamples(c, a)
			}
		}
	}
}

func bodyOf(t *testing.T, kind string, given map[string]any) (inJSON, form string) {
	if kind == "application/json" {
		text, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		return string(text), ""
	}
	var pairs []string
	for name, value := range given {
		pairs = append(pairs, name+"="+strings.ReplaceAll(fmt.Sprint(value), " ", "+"))
	}
	return "", strings.Join(pairs, "&")
}

// likeExamples checks that an answer has the members of the examples.
func (w *walk) likeExamples(c call, a answer) {
	w.t.Helper()
	_, documented := w.document.find(c.method, c.path).response(a.status)
	if a.kind != "application/json" {
		return
	}
	got := slices.Sorted(maps.Keys(fromJSON(w.t, string(a.body)).(map[string]any)))
	for name, example := range at(documented.Content, a.kind).Examples.FromOldest() {
		want := slices.Sorted(maps.Keys(decode(w.t, example.Value).(map[string]any)))
		if !slices.Equal(got, want) {
			w.t.Errorf("%s: members %q, those of the example %s are %q", c, got, name, want)
		}
	}
}

// fence returns the fencing token that an answer tells.
func (w *walk) fence(a answer) int64 {
	w.t.Helper()
	var grant struct {
		Fence int64 `json:"fencing_token"`
	}
	if err := json.Unmarshal(a.body, &grant); err != nil || grant.Fence == 0 {
		w.t.Fatalf("no fencing token in %s: %v", a.body, err)
	}
	return grant.Fence
}

// pending is an answer that has yet to come.
type pending struct {
	call   call
	answer chan answer
	err    chan error
}

// later sends a call and does not wait for the answer.
func (w *walk) later(c call) pending {
	w.t.Helper()
	p := pending{c, make(chan answer, 1), make(chan error, 1)}
	r, err := c.request(w.process.URL, c.path)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		response, err := w.client.Do(r)
		if err != nil {
			p.err <- err
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			p.err <- err
			return
		}
		p.answer <- answerOf(response, body)
	}()
	return p
}

// settle waits for the answer, judges it, and checks the outcome.
func (w *walk) settle(outcome string, p pending) {
	w.t.Helper()
	select {
	case a := <-p.answer:
		w.judge(p.call, a)
		if a.outcome() != outcome {
			w.t.Errorf("%s: %s, want %s", p.call, a.outcome(), outcome)
		}
	case err := <-p.err:
		w.t.Errorf("%s: %v", p.call, err)
	}
}
