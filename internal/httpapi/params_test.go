package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// codeOf returns the code of a problem and its detail.
func codeOf(t *testing.T, response *http.Response) (code, detail string) {
	t.Helper()
	var p struct{ Code, Detail string }
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return p.Code, p.Detail
}

func TestAcquireReadsItsParametersFromEverywhere(t *testing.T) {
	want := locker.Request{
		Key: "k", Owner: "w1", TTL: 90 * time.Second, Renew: false, MaxHold: 2 * time.Hour,
		MinHold: 1500 * time.Millisecond, Note: "nightly report; part 2 + 3",
	}
	pairs := "ttl=1m30s&owner=w1&renew=false&max_hold=2h&min_hold=1500ms&note=nightly+report%3B+part+2+%2B+3&wait=20s&bind=none"
	object := `{"ttl":"1m30s","owner":"w1","renew":false,"max_hold":"2h","min_hold":"1500ms","note":"nightly report; part 2 + 3","wait":"20s","bind":"none"}`
	for name, test := range map[string]struct{ target, body, contentType string }{
		"query":                    {"/locks/k?" + pairs, "", ""},
		"form":                     {"/locks/k", pairs, formType},
		"form with charset":        {"/locks/k", pairs, formType + "; charset=UTF-8"},
		"body without type":        {"/locks/k", pairs, ""},
		"JSON":                     {"/locks/k", object, jsonType},
		"JSON with charset":        {"/locks/k", object, jsonType + ";charset=utf-8"},
		"JSON, truth as text":      {"/locks/k", strings.Replace(object, "false", `"false"`, 1), jsonType},
		"JSON, zero as number":     {"/locks/k", strings.Replace(object, `"0"`, `0`, 1), jsonType},
		"query and form":           {"/locks/k?ttl=90s", strings.TrimPrefix(pairs, "ttl=1m30s&"), formType},
		"plain semicolon":          {"/locks/k", strings.Replace(pairs, "%3B", ";", 1), formType},
		"null beside a query name": {"/locks/k?ttl=90s", strings.Replace(object, `"1m30s"`, `null`, 1), jsonType},
	} {
		t.Run(name, func(t *testing.T) {
			locks := newFakeLocks()
			var got locker.Request
			locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
				got = r
				return locks.statusOf(1, r), false, nil
			}
			response := do(t, newAPI(testConfig(locks)), http.MethodPost, test.target, test.body, "Content-Type", test.contentType)
			if response.StatusCode != http.StatusCreated {
				code, detail := codeOf(t, response)
				t.Fatal(response.StatusCode, code, detail)
			}
			for _, p := range []locker.Parameter{"ttl", "owner", "renew", "max_hold", "min_hold", "note", "wait", "bind"} {
				if !slices.Contains(got.Given, p) {
					t.Errorf("%s does not count as given", p)
				}
			}
			got.Given = nil
			want := want
			if got.Key != want.Key || got.Owner != want.Owner || got.TTL != want.TTL || got.Renew != want.Renew ||
				got.MaxHold != want.MaxHold || got.MinHold != want.MinHold || got.Note != want.Note || got.Wait != 20*time.Second {
				t.Errorf("asked for %+v, want %+v", got, want)
			}
		})
	}
}

func TestAcquireHasDefaults(t *testing.T) {
	locks := newFakeLocks()
	var got locker.Request
	locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
		got = r
		return locks.statusOf(1, r), false, nil
	}
	cfg := testConfig(locks)
	cfg.DefaultMaxHold = time.Hour
	do(t, newAPI(cfg), http.MethodPost, "/locks/k", "")
	if got.TTL != 30*time.Second || !got.Renew || got.MaxHold != time.Hour || got.MinHold != 0 || got.Owner != "" || len(got.Given) != 0 {
		t.Errorf("asked for %+v", got)
	}
}

func TestMistakenParametersAreRefused(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, test := range []struct {
		method, target, body, contentType string
		status                            int
		code, detail                      string
	}{
		// durations
		{"POST", "/locks/k?ttl=30", "", "", 400, "invalid_ttl", `"30s"`},
		{"POST", "/locks/k", `{"ttl":30}`, jsonType, 400, "invalid_ttl", `"30s"`},
		{"POST", "/locks/k", `{"ttl":"5"}`, jsonType, 400, "invalid_ttl", `"5s"`},
		{"POST", "/locks/k", `{"ttl":0}`, jsonType, 400, "invalid_ttl", "from 1s to 24h"},
		{"POST", "/locks/k", `{"ttl":-1}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k", `{"ttl":1.5}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k", `{"ttl":1e3}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k", `{"ttl":9007199254740992}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k", `{"ttl":9223372036854775807}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k", `{"ttl":true}`, jsonType, 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=-5s", "", "", 400, "invalid_ttl", "from 1s"},
		{"POST", "/locks/k?ttl=1e3s", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=NaN", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=Inf", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=999ms", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=24h1ms", "", "", 400, "invalid_ttl", "24h"},
		{"POST", "/locks/k?ttl=99999999999h", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?ttl=1s500us", "", "", 400, "invalid_ttl", "whole milliseconds"},
		{"POST", "/locks/k?ttl=+30s", "", "", 400, "invalid_ttl", ""},
		{"POST", "/locks/k?wait=-1s", "", "", 400, "invalid_wait", ""},
		{"POST", "/locks/k?wait=61m", "", "", 400, "invalid_wait", "1h"},
		{"POST", "/locks/k?wait=5", "", "", 400, "invalid_wait", `"5s"`},
		{"POST", "/locks/k?max_hold=-1s", "", "", 400, "invalid_max_hold", ""},
		{"POST", "/locks/k?max_hold=2000000h", "", "", 400, "invalid_max_hold", ""},
		{"POST", "/locks/k?min_hold=25h", "", "", 400, "invalid_min_hold", ""},
		{"PATCH", "/locks/k?ttl=0", "", "", 400, "invalid_ttl", ""},
		{"DELETE", "/locks/k?min_hold=5s", "", "", 400, "invalid_min_hold", "only be 0"},

		// words
		{"POST", "/locks/k?bind=pod", "", "", 400, "invalid_bind", "none or connection"},
		{"POST", "/locks/k?bind=connection&renew=false", "", "", 400, "invalid_bind", ""},
		{"POST", "/locks/k?renew=yes", "", "", 400, "invalid_renew", "true or false"},
		{"POST", "/locks/k", `{"renew":1}`, jsonType, 400, "invalid_renew", ""},
		{"DELETE", "/locks/k?force", "", "", 400, "invalid_force", ""},
		{"DELETE", "/locks?all=1", "", "", 400, "invalid_all", ""},

		// texts
		{"POST", "/locks/k?owner=", "", "", 400, "invalid_owner", "empty"},
		{"DELETE", "/locks/k?owner=", "", "", 400, "invalid_owner", "empty"},
		{"DELETE", "/locks?owner=", "", "", 400, "invalid_owner", "empty"},
		{"POST", "/locks/k?owner=web-0", "", "", 400, "invalid_owner", "own name"},
		{"POST", "/locks/k?owner=shop/web-0", "", "", 400, "invalid_owner", "own name"},
		{"POST", "/locks/k?owner=" + long[:129], "", "", 400, "invalid_owner", "128"},
		{"POST", "/locks/k?owner=a%0Ab", "", "", 400, "invalid_owner", "control"},
		{"POST", "/locks/k?owner=%FF", "", "", 400, "invalid_owner", "UTF-8"},
		{"POST", "/locks/k", `{"owner":"\ud800"}`, jsonType, 400, "invalid_owner", "UTF-8"},
		{"POST", "/locks/k", `{"owner":7}`, jsonType, 400, "invalid_owner", "text"},
		{"POST", "/locks/k?note=" + long[:257], "", "", 400, "invalid_note", "256"},
		{"POST", "/locks/k?note=%00", "", "", 400, "invalid_note", "control"},

		// fencing tokens
		{"GET", "/locks/k?fencing_token=0", "", "", 400, "invalid_fencing_token", ""},
		{"GET", "/locks/k?fencing_token=-1", "", "", 400, "invalid_fencing_token", ""},
		{"GET", "/locks/k?fencing_token=01", "", "", 400, "invalid_fencing_token", ""},
		{"GET", "/locks/k?fencing_token=%2B1", "", "", 400, "invalid_fencing_token", ""},
		{"GET", "/locks/k?fencing_token=1.0", "", "", 400, "invalid_fencing_token", ""},
		{"GET", "/locks/k?fencing_token=9007199254740992", "", "", 400, "invalid_fencing_token", ""},
		{"DELETE", "/locks/k", `{"fencing_token":1e3}`, jsonType, 400, "invalid_fencing_token", ""},
		{"DELETE", "/locks/k", `{"fencing_token":true}`, jsonType, 400, "invalid_fencing_token", ""},

		// names
		{"POST", "/locks/k?ttl_ms=30000", "", "", 400, "invalid_parameter", "only ttl, wait, owner"},
		{"POST", "/locks/k?fencing_token=5", "", "", 400, "invalid_parameter", "unknown"},
		{"POST", "/locks/k?TTL=30s", "", "", 400, "invalid_parameter", "unknown"},
		{"GET", "/locks/k?ttl=30s", "", "", 400, "invalid_parameter", "only fencing_token, owner"},
		{"PATCH", "/locks/k?renew=true", "", "", 400, "invalid_parameter", "unknown"},
		{"DELETE", "/locks/k?ttl=1s", "", "", 400, "invalid_parameter", "unknown"},
		{"GET", "/locks?owner=w", "", "", 400, "invalid_parameter", "no parameters"},
		{"POST", "/drain?now=1", "", "", 400, "invalid_parameter", "no parameters"},
		{"POST", "/quit", "now=1", formType, 400, "invalid_parameter", "no parameters"},
		{"POST", "/locks/k?ttl=30s&ttl=30s", "", "", 400, "invalid_parameter", "more than once"},
		{"POST", "/locks/k?ttl=30s", "ttl=30s", formType, 400, "invalid_parameter", "more than once"},
		{"DELETE", "/locks/k?owner=a", `{"owner":"b"}`, jsonType, 400, "invalid_parameter", "more than once"},
		{"POST", "/locks/k", `{"ttl":"30s","ttl":"30s"}`, jsonType, 400, "invalid_parameter", "more than once"},
		{"POST", "/locks/k", `{"ttl":null,"ttl":"30s"}`, jsonType, 400, "invalid_parameter", "more than once"},
		{"POST", "/locks/k", `{"tll":null}`, jsonType, 400, "invalid_parameter", "unknown"},
		{"POST", "/locks/k", `{"":"x"}`, jsonType, 400, "invalid_parameter", "unknown"},
		{"POST", "/locks/k?%zz=1", "", "", 400, "invalid_parameter", "percent"},
		{"DELETE", "/locks", "", "", 400, "invalid_parameter", "owner=… or all=true"},
		{"DELETE", "/locks?all=false", "", "", 400, "invalid_parameter", "owner=… or all=true"},
		{"DELETE", "/locks?all=true&owner=w", "", "", 400, "invalid_parameter", "contradict"},

		// bodies
		{"POST", "/locks/k", `{"ttl":"30s"}`, formType, 400, "invalid_body", "Content-Type: application/json"},
		{"POST", "/locks/k", ` [1]`, "", 400, "invalid_body", "Content-Type: application/json"},
		{"POST", "/locks/k", `{"ttl":"30s"`, jsonType, 400, "invalid_body", ""},
		{"POST", "/locks/k", `{"ttl":"30s"} {}`, jsonType, 400, "invalid_body", ""},
		{"POST", "/locks/k", `{"ttl" "30s"}`, jsonType, 400, "invalid_body", ""},
		{"POST", "/locks/k", `[]`, jsonType, 400, "invalid_body", "object"},
		{"POST", "/locks/k", `null`, jsonType, 400, "invalid_body", "object"},
		{"POST", "/locks/k", `ttl=30s`, jsonType, 400, "invalid_body", ""},
		{"POST", "/locks/k", "{\"note\":\"\xff\"}", jsonType, 400, "invalid_body", "UTF-8"},
		{"POST", "/locks/k", `{"note":{"a":1}}`, jsonType, 400, "invalid_parameter", "text"},
		{"POST", "/locks/k", `{"note":["a"]}`, jsonType, 400, "invalid_parameter", "text"},
		{"POST", "/locks/k", `{"note":` + strings.Repeat("[", 4000), jsonType, 400, "invalid_parameter", ""},
		{"POST", "/locks/k", "ttl=30s", "text/plain", 415, "unsupported_media_type", "application/json"},
		{"POST", "/locks/k", "ttl=30s", "multipart/form-data; boundary=x", 415, "unsupported_media_type", ""},
		{"POST", "/locks/k", "ttl=30s", formType + "; charset=latin1", 415, "unsupported_media_type", "UTF-8"},
		{"POST", "/locks/k", "ttl=30s", ";", 415, "unsupported_media_type", ""},
		{"POST", "/locks/k", "note=" + strings.Repeat("x", 5000), formType, 413, "body_too_large", "4096"},
	} {
		t.Run(test.method+" "+test.target[:min(len(test.target), 30)]+" "+test.body[:min(len(test.body), 20)], func(t *testing.T) {
			locks := newFakeLocks()
			response := do(t, newAPI(testConfig(locks)), test.method, test.target, test.body, "Content-Type", test.contentType)
			code, detail := codeOf(t, response)
			if response.StatusCode != test.status || code != test.code || !strings.Contains(detail, test.detail) {
				t.Errorf("%d %s %q, want %d %s …%q…", response.StatusCode, code, detail, test.status, test.code, test.detail)
			}
			if n := locks.calls.Load(); n > 0 {
				t.Error("the locks were touched")
			}
		})
	}
}

func TestAnEmptyBodyNeedsNoType(t *testing.T) {
	for _, contentType := range []string{"", formType, jsonType, "text/xml"} {
		r := httptest.NewRequest(http.MethodDelete, "/locks/k", strings.NewReader(""))
		r.Host = "localhost"
		r.ContentLength = -1
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		newAPI(testConfig(newFakeLocks())).ServeHTTP(w, r)
		if w.Code != http.StatusNoContent {
			t.Errorf("status %d with type %q: %s", w.Code, contentType, w.Body)
		}
	}
}

func TestAnEncodedBodyIsRefused(t *testing.T) {
	locks := newFakeLocks()
	response := do(t, newAPI(testConfig(locks)), "POST", "/locks/k", "ttl=30s", "Content-Encoding", "gzip")
	if code, _ := codeOf(t, response); response.StatusCode != 415 || code != "unsupported_media_type" || locks.calls.Load() > 0 {
		t.Errorf("%d %s", response.StatusCode, code)
	}
}

func FuzzParams(f *testing.F) {
	f.Add("ttl=30s&owner=w1", "note=x", false)
	f.Add("", `{"ttl":"30s","renew":true,"fencing_token":5,"x":null}`, true)
	f.Add("wait=%31s;", `{"note":"\u0000"}`, true)
	f.Fuzz(func(t *testing.T, query, body string, asJSON bool) {
		r := &http.Request{
			Method: http.MethodPost, Header: http.Header{}, Host: "localhost",
			URL: &url.URL{Path: "/locks/k", RawQuery: query}, Body: io.NopCloser(strings.NewReader(body)),
		}
		if asJSON {
			r.Header.Set("Content-Type", jsonType)
		}
		req, err := newAPI(testConfig(newFakeLocks())).acquireRequest(r)
		if err != nil {
			p := problemOf(err)
			if p.Status != 400 && p.Status != 415 {
				t.Errorf("status %d: %v", p.Status, err)
			}
			if encoded, err := json.Marshal(p); err != nil || !utf8.Valid(encoded) {
				t.Errorf("problem %q: %v", encoded, err)
			}
			return
		}
		if req.TTL < time.Second || req.TTL > 24*time.Hour || req.Wait < 0 || req.Wait > time.Hour || req.MinHold < 0 || req.MaxHold < 0 ||
			req.TTL%time.Millisecond != 0 || !utf8.ValidString(req.Owner+req.Note) || utf8.RuneCountInString(req.Note) > 256 {
			t.Errorf("accepted %+v", req)
		}
	})
}
