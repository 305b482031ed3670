package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// at is an answer from an instant in ms, which took a millisecond.
func at(ms int64, status int, fence locker.Fence, validFor int64) answer {
	a := answer{Status: status, Sent: locker.Instant(ms * 1e6), Got: locker.Instant((ms + 1) * 1e6)}
	a.JSON.Fence, a.JSON.ValidUntilMS = fence, ms+validFor
	return a
}

func TestTheRecordFindsWhatMustNeverHappen(t *testing.T) {
	const post, get, del = http.MethodPost, http.MethodGet, http.MethodDelete
	a, b := &proc{}, &proc{}
	type step struct {
		p      *proc
		method string
		answer answer
	}
	for name, c := range map[string]struct {
		steps []step
		want  string // in the only problem; empty for none
	}{
		"given back, then granted":  {[]step{{a, post, at(0, 201, 1, 100)}, {a, del, at(50, 204, 0, 0)}, {b, post, at(52, 201, 2, 100)}}, ""},
		"expired, then granted":     {[]step{{a, post, at(0, 201, 1, 100)}, {b, post, at(110, 201, 2, 100)}}, ""},
		"lost early, then granted":  {[]step{{a, post, at(0, 201, 1, 100)}, {b, post, at(50, 201, 2, 100)}, {a, get, at(60, 410, 1, 0)}}, ""},
		"granted while held":        {[]step{{a, post, at(0, 201, 1, 100)}, {b, post, at(50, 201, 2, 100)}}, "both told to be valid for 49ms"},
		"granted while renewed":     {[]step{{a, post, at(0, 201, 1, 100)}, {a, get, at(60, 200, 1, 100)}, {b, post, at(110, 201, 2, 100)}}, "both told"},
		"held after the other's":    {[]step{{a, post, at(0, 201, 1, 10)}, {b, post, at(50, 201, 2, 100)}, {a, get, at(60, 200, 1, 100)}}, "both told"},
		"fence used twice":          {[]step{{a, post, at(0, 201, 1, 10)}, {b, post, at(50, 201, 1, 10)}}, "granted twice"},
		"fence falls":               {[]step{{a, post, at(0, 201, 2, 10)}, {b, post, at(50, 201, 1, 10)}}, "was made after"},
		"held after DELETE":         {[]step{{a, post, at(0, 201, 1, 100)}, {a, del, at(50, 204, 0, 0)}, {a, get, at(60, 200, 1, 100)}}, "after its end"},
		"held after loss":           {[]step{{a, post, at(0, 201, 1, 100)}, {a, get, at(50, 410, 1, 0)}, {a, get, at(60, 200, 1, 100)}}, "after its end"},
		"another's DELETE is noted": {[]step{{a, post, at(0, 201, 1, 100)}, {b, del, at(50, 204, 0, 0)}, {b, post, at(60, 201, 2, 100)}}, "both told"},
	} {
		r := newRecord()
		for _, s := range c.steps {
			r.take(s.p, s.method, "/locks/k", s.answer)
		}
		r.judge()
		if c.want == "" && len(r.problems) > 0 || c.want != "" && !slices.ContainsFunc(r.problems, func(p string) bool { return strings.Contains(p, c.want) }) {
			t.Errorf("%s: problems are %q, want %q", name, r.problems, c.want)
		}
	}
}

func TestTheRecordKnowsATokenWhenItSeesOne(t *testing.T) {
	token := locker.NewToken("ns/pod-1").Reveal()
	for _, text := range []string{token, `{"err":"` + token + `"}`, "value " + token[strings.LastIndexByte(token, '/')+1:] + "\n"} {
		if !randomPart.MatchString(text) {
			t.Errorf("no token was found where one of %d bytes is", len(token))
		}
	}
	if randomPart.MatchString(`{"key":"ABC","pod":"ns/pod-1","lost_at":"2026-01-01T00:00:00.000Z"}`) {
		t.Error("a token was found where none is")
	}
}
