package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// keySpellings are request targets and the key that they name; "" means that
// the answer is the status instead, and that no lock is touched.
var keySpellings = []struct {
	target string
	key    locker.Key
	status int
}{
	{"/locks/a", "a", 201},
	{"/locks/a/b", "a/b", 201},
	{"/locks/a%2Fb", "a/b", 201},
	{"/locks/a%2fb", "a/b", 201},
	{"/locks/%61", "a", 201},
	{"/locks/a+b", "a+b", 201},
	{"/locks/a%2Bb", "a+b", 201},
	{"/locks/a%252Fb", "a%2Fb", 201},
	{"/locks/a;b", "a;b", 201},
	{"/locks/a%3Bb", "a;b", 201},
	{"/locks/a%3Fb", "a?b", 201},
	{"/locks/a%23b", "a#b", 201},
	{"/locks/a#b", "a#b", 201}, // no client sends it, net/http reads it so
	{"/locks/a:b@c,d=e&f", "a:b@c,d=e&f", 201},
	{"/locks/...", "...", 201},
	{"/locks/locks", "locks", 201},
	{"/locks/%E2%82%AC", "€", 201},
	{"/locks/\u20ac", "€", 201},
	{"/locks/%25", "%", 201},
	{"/locks/a?", "a", 201},
	{"http://localhost:5625/locks/a%2Fb", "a/b", 201}, // absolute form
	{"/locks/" + strings.Repeat("k", 512), locker.Key(strings.Repeat("k", 512)), 201},

	{"/locks/", "", 400},
	{"/locks//", "", 400},
	{"/locks//a", "", 400},
	{"/locks/%2Fa", "", 400},
	{"/locks/a//b", "", 400},
	{"/locks/a/", "", 400},
	{"/locks/a%2F", "", 400},
	{"/locks/.", "", 400},
	{"/locks/..", "", 400},
	{"/locks/%2e%2e", "", 400},
	{"/locks/a/../b", "", 400},
	{"/locks/a/%2E/b", "", 400},
	{"/locks/%00", "", 400},
	{"/locks/a%0d%0aX:%20y", "", 400},
	{"/locks/a%20b", "", 400},
	{"/locks/a%C2%A0b", "", 400}, // no-break space
	{"/locks/%FF", "", 400},
	{"/locks/%C0%AF", "", 400}, // overlong slash
	{"/locks/{a}", "", 400},
	{"/locks/%7Ba%7D", "", 400},
	{"/locks/%23a", "", 400},
	{"/locks/#a", "", 400},
	{"/locks/" + strings.Repeat("k", 513), "", 414},

	{"/locks", "", 405},
	{"//locks/a", "", 404},
	{"/locks%2Fa", "", 404},
	{"/%6Cocks/a", "", 404},
	{"/Locks/a", "", 404},
	{"/x/../locks/a", "", 404},
}

func TestEverySpellingOfAKey(t *testing.T) {
	for _, test := range keySpellings {
		t.Run(test.target[:min(len(test.target), 40)], func(t *testing.T) {
			locks := newFakeLocks()
			var got locker.Key
			locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
				got = r.Key
				return locks.statusOf(1, r), false, nil
			}
			_, address := serve(t, "tcp", testConfig(locks))
			c := dial(t, "tcp", address)
			c.send("POST " + test.target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			response, body := c.answer()
			if response.StatusCode != test.status || got != test.key {
				t.Errorf("status %d and key %q, want %d and %q: %s", response.StatusCode, got, test.status, test.key, body)
			}
			if response.Header.Get("Location") != "" {
				t.Error("answered with a redirect")
			}
			if test.status == 400 && !strings.Contains(body, `"code":"invalid_key"`) {
				t.Errorf("answer %s", body)
			}
		})
	}
}

func TestABadEscapeIsRefused(t *testing.T) {
	for _, escaped := range []string{"%", "a%2", "a%zz", "%%41"} {
		if key, err := parseKey(escaped); err == nil {
			t.Errorf("%q is the key %q", escaped, key)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, test := range keySpellings {
		f.Add(strings.TrimPrefix(test.target, locksPath))
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		key, err := parseKey(escaped)
		if err != nil {
			if key != "" {
				t.Errorf("key %q and error %v", key, err)
			}
			if s := problemOf(err).Status; s != http.StatusBadRequest && s != http.StatusRequestURITooLong {
				t.Errorf("status %d for %q", s, escaped)
			}
			return
		}
		if again, err := parseKey(url.PathEscape(string(key))); err != nil || again != key {
			t.Errorf("%q is %q, but escaped anew it is %q (%v)", escaped, key, again, err)
		}
		if strings.ContainsAny(string(key), "\x00\r\n\t {}") {
			t.Errorf("%q is the key %q", escaped, key)
		}
	})
}
