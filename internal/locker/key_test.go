package locker_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var goodKeys = []string{
	"a", "nightly-report", "a/b/c", "a.b", "...", "a..b", ".hidden", "a/.b", "%2F", "a#b", "a/#b", "a:b", "a?b=c&d",
	"déjà-vu", "鍵", "🔒", "a\\b", `"quoted"`, "*", "[a-z]", strings.Repeat("k", locker.MaxKeyBytes),
}

var badKeys = map[string]string{
	"":                  "empty",
	"#a":                "'#'",
	"#":                 "'#'",
	"{":                 "brace at byte 0",
	"a{b":               "brace at byte 1",
	"é}":                "brace at byte 2",
	"a b":               "white space at byte 1",
	" a":                "white space at byte 0",
	"a\u00a0b":          "white space",
	"a\u2028b":          "white space",
	"a\u3000":           "white space",
	"a\nb":              "control character at byte 1",
	"a\r\nb":            "control character",
	"a\tb":              "control character",
	"a\x00":             "control character",
	"a\x7f":             "control character",
	"a\u0085b":          "control character",
	"a\xff":             "UTF-8",
	"\xc3":              "UTF-8",
	"\xed\xa0\x80":      "UTF-8", // half of a surrogate pair
	"a\xc0\xafb":        "UTF-8", // an overlong '/'
	"/":                 "empty segment",
	"/a":                "empty segment",
	"a/":                "empty segment",
	"a//b":              "empty segment",
	".":                 `segment "."`,
	"..":                `segment ".."`,
	"a/../b":            `segment ".."`,
	"a/.":               `segment "."`,
	"../../etc/passwd":  `segment ".."`,
	"{a}b":              "brace",
	"lock:{user1}.lock": "brace",
}

func TestParseKeyTakesWhatIsAllowedAsItIs(t *testing.T) {
	for _, s := range goodKeys {
		if key, err := locker.ParseKey(s); err != nil || string(key) != s {
			t.Errorf("ParseKey(%q) = %q, %v", s, key, err)
		}
	}
}

func TestParseKeySaysWhatIsWrong(t *testing.T) {
	for s, problem := range badKeys {
		key, err := locker.ParseKey(s)
		if err == nil || key != "" || !strings.Contains(err.Error(), problem) {
			t.Errorf("ParseKey(%q) = %q, %v; want an error that says %q", s, key, err, problem)
		}
		if errors.Is(err, locker.ErrKeyTooLong) {
			t.Errorf("ParseKey(%q) calls it too long", s)
		}
	}
}

func TestParseKeyTellsATooLongKeyApart(t *testing.T) {
	for _, s := range []string{
		strings.Repeat("k", locker.MaxKeyBytes+1),
		strings.Repeat("é", locker.MaxKeyBytes/2) + "k",
		strings.Repeat("{", 1<<20), // the length is looked at first
	} {
		if _, err := locker.ParseKey(s); !errors.Is(err, locker.ErrKeyTooLong) {
			t.Errorf("ParseKey of %d bytes: %v, want ErrKeyTooLong", len(s), err)
		}
	}
}

func FuzzParseKeyLetsNothingThroughThatStoresOrProxiesReadOtherwise(f *testing.F) {
	for _, s := range goodKeys {
		f.Add(s)
	}
	for s := range badKeys {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := locker.ParseKey(s)
		if err != nil {
			if key != "" {
				t.Errorf("an error and the key %q", key)
			}
			return
		}
		switch {
		case string(key) != s:
			t.Errorf("%q became %q", s, key)
		case len(s) == 0 || len(s) > 512:
			t.Errorf("%d bytes", len(s))
		case !utf8.ValidString(s):
			t.Errorf("%q is not UTF-8", s)
		case s[0] == '#' || strings.ContainsAny(s, "{}"):
			t.Errorf("%q can collide with another name", s)
		case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
			t.Errorf("%q can break a line or a header", s)
		}
		for _, segment := range strings.Split(s, "/") {
			if segment == "" || segment == "." || segment == ".." {
				t.Errorf("%q has the segment %q", s, segment)
			}
		}
	})
}
