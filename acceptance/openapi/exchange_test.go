package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// walk sends requests to one process and judges every answer by the document.
type walk struct {
	t        *testing.T
	document *document
	process  *sidecar.Process
	client   *http.Client
	token    string // sent with every request, if not empty
	seen     map[sight]bool
}

// sight is one thing that the document tells of, or that was seen.
type sight struct {
	operation string
	status    string // as the document has it: "409", "4XX"
	kind      string // media type; empty without a body
	code      string // of a problem in JSON
}

func newWalk(t *testing.T, d *document, p *sidecar.Process, seen map[sight]bool) *walk {
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	t.Cleanup(transport.CloseIdleConnections)
	return &walk{t: t, document: d, process: p, client: &http.Client{Transport: transport, Timeout: 20 * time.Second}, seen: seen}
}

// call is one request. A form and JSON exclude each other.
type call struct {
	method, path string // the path and its query, as clients made from the document spell them
	spelled      string // how they are sent, if otherwise
	form, json   string
	header       []string // name, value, name, value…

	unfit bool // the document refuses the request as well
	free  bool // the document does not judge the request
	once  bool // it cannot be repeated
}

func (c call) String() string { return c.method + " " + c.path + " " + c.form + c.json }

func (c call) with(name, value string) call {
	c.header = append(slices.Clone(c.header), name, value)
	return c
}

func (c call) request(base, path string) (*http.Request, error) {
	r, err := http.NewRequest(c.method, base+path, strings.NewReader(c.form+c.json))
	if err != nil {
		return nil, err
	}
	switch {
	case c.form != "":
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	case c.json != "":
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(c.header); i += 2 {
		if c.header[i] == "Host" {
			r.Host = c.header[i+1]
			continue
		}
		r.Header.Set(c.header[i], c.header[i+1])
	}
	return r, nil
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	kind   string // media type, without parameters
	body   []byte
}

func answerOf(response *http.Response, body []byte) answer {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return answer{response.StatusCode, response.Header, kind, body}
}

// outcome is the status and, of a problem in JSON, the code.
func (a answer) outcome() string {
	return strings.TrimSpace(fmt.Sprint(a.status, " ", a.code()))
}

func (a answer) code() string {
	var problem struct{ Code string }
	if a.kind == "application/problem+json" {
		_ = json.Unmarshal(a.body, &problem) // the document says what it has to be
	}
	return problem.Code
}

// open sends a call and returns the answer with its body unread.
func (w *walk) open(c call) *http.Response {
	w.t.Helper()
	base, path := w.process.URL, c.path
	if op := w.document.find(c.method, c.path); op.admin {
		base = w.process.Admin
	}
	if c.spelled != "" {
		path = c.spelled
	}
	r, err := c.request(base, path)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	response, err := w.client.Do(r)
	if err != nil {
		w.t.Fatalf("%s: %v", c, err)
	}
	w.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// send sends a call and judges the answer.
func (w *walk) send(c call) answer {
	w.t.Helper()
	response := w.open(c)
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatalf("%s: %v", c, err)
	}
	a := answerOf(response, body)
	w.judge(c, a)
	return a
}

// unheard tells whether the store was not heard in time, which on a busy machine
// may be so at any time. What was asked for can be asked for again.
func (a answer) unheard() bool {
	return slices.Contains([]string{"acquire_unresolved", "extend_unconfirmed", "release_unconfirmed", "store_unavailable", "store_busy"}, a.code())
}

// expect sends a call that must have that outcome: "201", "409 held". A problem
// is asked for once more as plain text, which must tell the same.
func (w *walk) expect(outcome string, c call) answer {
	w.t.Helper()
	a := w.send(c)
	for again := 0; again < 10 && a.outcome() != outcome && a.unheard() && !c.once; again++ {
		time.Sleep(50 * time.Millisecond)
		a = w.send(c)
		if outcome == "204" && a.outcome() == "404 not_held" {
			return a // it was given back by the one before
		}
	}
	if a.outcome() != outcome {
		w.t.Errorf("%s: %s %s, want %s", c, a.outcome(), a.body, outcome)
		return a
	}
	if a.kind == "application/problem+json" && len(a.body) > 0 && !c.once {
		plain := w.send(c.with("Accept", "text/plain"))
		for again := 0; again < 10 && a.status != http.StatusServiceUnavailable && plain.status == http.StatusServiceUnavailable; again++ {
			time.Sleep(50 * time.Millisecond)
			plain = w.send(c.with("Accept", "text/plain"))
		}
		if plain.status != a.status {
			w.t.Errorf("%s in plain text: %d, want %d", c, plain.status, a.status)
		}
		w.sameNames(c, a, plain)
	}
	return a
}

// sameNames checks that plain text tells what the JSON tells.
func (w *walk) sameNames(c call, inJSON, plain answer) {
	w.t.Helper()
	want, got := shellNames(fromJSON(w.t, string(inJSON.body)), ""), lineNames(string(plain.body))
	slices.Sort(want)
	slices.Sort(got)
	if plain.kind != "text/plain" || !slices.Equal(want, got) {
		w.t.Errorf("%s as %s has the names %q, want %q", c, plain.kind, got, want)
	}
}

// judge checks an exchange by the document.
func (w *walk) judge(c call, a answer) {
	w.t.Helper()
	op := w.document.find(c.method, c.path)
	if op.Operation == nil {
		w.t.Fatalf("%s %s is not in the document", c.method, c.path)
	}
	status, response := op.response(a.status)
	if response == nil {
		w.t.Errorf("%s: the document does not have %d", c, a.status)
		return
	}
	s := sight{op.OperationId, status, a.kind, a.code()}
	if c.method == http.MethodHead {
		s.kind = ""
	}
	w.seen[s] = true

	r, err := c.request("http://localhost", c.path)
	if err != nil {
		w.t.Fatal(err)
	}
	if !c.free {
		if ok, errs := w.document.validator.ValidateHttpRequest(r); ok == c.unfit {
			w.t.Errorf("%s: answered %s, and the document finds the request valid: %v\n%s", c, a.outcome(), ok, describe(errs))
		}
	}
	got := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body))}
	if ok, errs := w.document.validator.ValidateHttpResponse(r, got); !ok {
		w.t.Errorf("%s: %d %s\n%s", c, a.status, a.body, describe(errs))
	}
	w.checkRest(c.String(), response, a)
}

// ordinary are headers that belong to HTTP and not to this interface.
var ordinary = []string{"Date", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection"}

// checkRest checks what the library does not.
func (w *walk) checkRest(what string, documented *v3.Response, a answer) {
	w.t.Helper()
	for name := range a.header {
		known := slices.Contains(ordinary, name)
		for documentedName := range documented.Headers.KeysFromOldest() {
			known = known || http.CanonicalHeaderKey(documentedName) == name
		}
		if !known {
			w.t.Errorf("%s: %d has the header %s, which is not in the document", what, a.status, name)
		}
	}
	if orderedmap.Len(documented.Content) == 0 {
		if len(a.body) > 0 { // the library says nothing of that
			w.t.Errorf("%s: %d has a body, which is not in the document: %q", what, a.status, a.body)
		}
		return
	}
	if media := at(documented.Content, a.kind); media != nil {
		w.document.checkText(w.t, what, a.kind, media, string(a.body))
	}
	if a.kind == "application/problem+json" {
		w.checkWords(what, documented, a)
	}
}

// checkWords checks that the document's examples of a code have its words.
func (w *walk) checkWords(what string, documented *v3.Response, a answer) {
	w.t.Helper()
	real := fromJSON(w.t, string(a.body)).(map[string]any)
	for name, example := range at(documented.Content, a.kind).Examples.FromOldest() {
		told := decode(w.t, example.Value).(map[string]any)
		if told["code"] == real["code"] && (told["type"] != real["type"] || told["title"] != real["title"]) {
			w.t.Errorf("%s: the example %s has another type or title than %s", what, name, a.body)
		}
	}
}

// checkComponent judges an answer to what is no operation.
func (w *walk) checkComponent(name string, a answer) {
	w.t.Helper()
	documented := at(w.document.model.Components.Responses, name)
	media := at(documented.Content, a.kind)
	if media == nil {
		w.t.Errorf("%s is answered as %q", name, a.kind)
		return
	}
	value := any(string(a.body))
	if strings.HasSuffix(a.kind, "json") {
		value = fromJSON(w.t, string(a.body))
	}
	if problem := w.document.fits(media.Schema, value); problem != "" {
		w.t.Errorf("%s: %s\n%s", name, a.body, problem)
	}
	for header, h := range documented.Headers.FromOldest() {
		if problem := w.document.fits(h.Schema, a.header.Get(header)); problem != "" {
			w.t.Errorf("%s: %s: %q %s", name, header, a.header.Get(header), problem)
		}
	}
	w.checkRest(name, documented, a)
	w.seen[sight{"components", name, a.kind, a.code()}] = true
}
