package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// client is what the requests of tests go through. Nothing it is used for may
// take longer than its time-out.
var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// Do sends one request and returns its answer with the body read. Headers are
// name, value, name, value…; a body is a form unless they say otherwise.
func (p *Process) Do(method, path, body string, headers ...string) (status int, answer string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// Must is Do for a request that has to be answered with that status. Where the
// store was not heard in time, as on a busy machine, it is sent again.
func (p *Process) Must(status int, method, path, body string, headers ...string) string {
	p.t.Helper()
	got, answer := p.Do(method, path, body, headers...)
	for attempt := 0; got != status && got == http.StatusServiceUnavailable && attempt < 10; attempt++ {
		time.Sleep(50 * time.Millisecond)
		got, answer = p.Do(method, path, body, headers...)
		if method == http.MethodDelete && got == http.StatusNotFound {
			got = http.StatusNoContent // by the one before
		}
	}
	if got != status {
		p.t.Fatalf("%s %s: %d %s", method, path, got, answer)
	}
	return answer
}

// Background sends a request whose answer nobody reads, and ends it with the
// test.
func (p *Process) Background(method, path, body string) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var sending sync.WaitGroup
	sending.Go(func() {
		if response, err := new(http.Client).Do(r); err == nil {
			_ = response.Body.Close()
		}
	})
	p.t.Cleanup(func() { cancel(); sending.Wait() })
}

// AwaitRow returns once the sidecar's status has a row of that kind (held,
// waiting, releasing, lost) with the key and owner, in that state where the
// kind has others.
func (p *Process) AwaitRow(kind, key, owner string) {
	p.t.Helper()
	Eventually(p.t, fmt.Sprintf("%s by %q is among %s", key, owner, kind), func() bool {
		_, body := p.Do(http.MethodGet, "/?limit=1000", "")
		var told map[string]json.RawMessage
		var section struct {
			Rows []struct{ Key, Owner, State string }
		}
		if json.Unmarshal([]byte(body), &told) != nil || json.Unmarshal(told[kind], &section) != nil {
			return false
		}
		for _, r := range section.Rows {
			if r.Key == key && r.Owner == owner && (r.State == kind || kind == "held") {
				return true
			}
		}
		return false
	})
}

// TakeMany takes n locks; key is a format for their number.
func (p *Process) TakeMany(n int, key, body string) {
	p.t.Helper()
	numbers := make(chan int)
	failed := make(chan error, n)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				if err := p.take(fmt.Sprintf(key, i), body); err != nil {
					failed <- err // there is room for all
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
	select {
	case err := <-failed:
		p.t.Fatal("not all locks could be taken: ", err)
	default:
	}
}

// take takes one lock. On a busy machine the store may not be heard in time,
// and what it did is undone then: it is asked again.
func (p *Process) take(key, body string) error {
	for attempt := 0; ; attempt++ {
		r, err := http.NewRequest(http.MethodPost, p.URL+"/locks/"+key, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		switch {
		case response.StatusCode == http.StatusCreated:
			return nil
		case response.StatusCode != http.StatusServiceUnavailable || attempt == 10:
			return errors.New(key + ": " + response.Status)
		}
	}
}
