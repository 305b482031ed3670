package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// answerDeadline is far above any bound that the API promises.
const answerDeadline = 20 * time.Second

// newClient returns a client that keeps connections, to the socket if one is
// given.
func newClient(socket string) *http.Client {
	var dialer net.Dialer
	transport := &http.Transport{MaxIdleConnsPerHost: 600}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: transport, Timeout: answerDeadline}
}

// answer is what a request got, and what of its JSON tests ask for.
type answer struct {
	Err    error // there was no answer; Status is 0 then
	Status int
	Header http.Header
	Body   string

	again func() answer // sends the request once more

	Handle    locker.Fence   // that the request named in its query; 0 for none
	Sent, Got locker.Instant // right before and after, on the clock of valid_until_boottime_ms

	JSON struct {
		Code         string
		State        string
		Detail       string
		Cause        string
		Owner        string
		Note         string
		Renewals     int
		HeldHere     bool         `json:"held_here"`
		Fence        locker.Fence `json:"fencing_token"`
		ValidForMS   int64        `json:"valid_for_ms"`
		ValidUntilMS int64        `json:"valid_until_boottime_ms"`
		ExpiresInMS  int64        `json:"expires_in_ms"`
		FreeWithinMS int64        `json:"free_within_ms"`
		Holder       *struct{ Pod, Note string }
	}
}

// Took returns how long the answer took.
func (a answer) Took() time.Duration { return a.Got.Sub(a.Sent) }

func (a answer) String() string {
	if a.Err != nil {
		return fmt.Sprintf("no answer: %v", a.Err)
	}
	return fmt.Sprintf("%d %s", a.Status, strings.TrimSpace(a.Body))
}

// Is tells whether the answer has the status and, unless it is empty, the
// code, for an error, or state, for a success.
func (a answer) Is(status int, word string) bool {
	return a.Err == nil && a.Status == status && (word == "" || word == a.JSON.Code || word == a.JSON.State)
}

// Want fails the test unless [answer.Is]; it returns the answer.
func (a answer) Want(t testing.TB, status int, word string) answer {
	t.Helper()
	if !a.Is(status, word) {
		t.Fatalf("the answer is %v; want %d %s", a, status, word)
	}
	return a
}

// Finally is Want for a request to a store that is in no trouble: on a machine
// that is busy with other tests it may be slow all the same. As long as the
// answer says so, the request is sent again.
func (a answer) Finally(t testing.TB, status int, word string) answer {
	t.Helper()
	return a.settled().Want(t, status, word)
}

// settled is the first answer that does not say so. It may be called from any
// goroutine.
func (a answer) settled() answer {
	for deadline := time.Now().Add(answerDeadline); a.slow() && time.Now().Before(deadline); {
		a = a.again()
	}
	return a
}

// slow tells whether the answer says that the store's has not come in time.
func (a answer) slow() bool {
	switch a.JSON.Code {
	case "acquire_unresolved", "release_unconfirmed", "store_unavailable", "no_quorum", "not_replicated":
		return a.again != nil && a.Status == http.StatusServiceUnavailable
	}
	return false
}

// POST asks for the lock; parameters are name=value and go as a form. What
// they may hold needs no escaping, or is escaped by the caller.
func (p *proc) POST(key string, params ...string) answer {
	return p.Request(http.MethodPost, "/locks/"+key, params...)
}

// GET asks for the state of the lock.
func (p *proc) GET(key string, params ...string) answer {
	return p.Request(http.MethodGet, "/locks/"+key, params...)
}

// PATCH extends the lock.
func (p *proc) PATCH(key string, params ...string) answer {
	return p.Request(http.MethodPatch, "/locks/"+key, params...)
}

// DELETE gives the lock back.
func (p *proc) DELETE(key string, params ...string) answer {
	return p.Request(http.MethodDelete, "/locks/"+key, params...)
}

// Request sends a request to the API, with the parameters in the query for
// GET and DELETE and in a form for the rest. It may be called from any
// goroutine.
func (p *proc) Request(method, path string, params ...string) answer {
	form := strings.Join(params, "&")
	var body io.Reader
	url := p.URL + path
	if method == http.MethodGet || method == http.MethodDelete {
		if form != "" {
			url += "?" + form
		}
	} else {
		body = strings.NewReader(form)
	}
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{Err: err}
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	a := p.Do(r)
	a.again = func() answer { return p.Request(method, path, params...) }
	return a
}

// Do sends any request to the process, and takes note of what it promises.
func (p *proc) Do(r *http.Request) answer {
	a := answer{Sent: locker.BootTime()}
	if fence, err := strconv.ParseInt(r.URL.Query().Get("fencing_token"), 10, 64); err == nil {
		a.Handle = locker.Fence(fence)
	}
	res, err := p.client.Do(r)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
		a.Status, a.Header, a.Body = res.StatusCode, res.Header, string(body)
	}
	a.Got = locker.BootTime()
	if err != nil {
		a.Err, a.Status = err, 0
		if key, isLock := strings.CutPrefix(r.URL.Path, "/locks/"); isLock && r.Method == http.MethodDelete {
			p.record.mayHaveGivenUp(p, key, a)
		}
		return a
	}
	if strings.Contains(a.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal([]byte(a.Body), &a.JSON) // a list has none of these fields
	}
	p.record.take(p, r.Method, r.URL.Path, a)
	return a
}

// page gets a page of the admin door.
func (p *proc) page(path string) (status int, text string) {
	p.t.Helper()
	res, err := p.visitor.Get(p.Admin + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	p.record.saw(p, "page "+path, string(body))
	return res.StatusCode, string(body)
}

// Ready returns the status and text of the readiness page.
func (p *proc) Ready() (status int, text string) { p.t.Helper(); return p.page("/readyz") }

// Metrics returns the metrics page.
func (p *proc) Metrics() string {
	p.t.Helper()
	status, text := p.page("/metrics")
	if status != http.StatusOK {
		p.t.Fatalf("/metrics: %d %s", status, text)
	}
	return text
}

// Metric returns the value of one series, such as
// locksidecar_locks_lost_total{cause="gone"}.
func (p *proc) Metric(series string) float64 {
	p.t.Helper()
	for line := range strings.Lines(p.Metrics()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	p.t.Fatalf("there is no series %s", series)
	return 0
}

// leaveEarly asks for the lock and leaves after that time, whether or not
// there was an answer.
func (p *proc) leaveEarly(key string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/locks/"+key, nil)
	if err == nil {
		p.Do(r)
	}
}
