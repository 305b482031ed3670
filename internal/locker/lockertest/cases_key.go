package lockertest

import (
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// oddNames are keys that a store, a pattern or an encoder might confuse.
var oddNames = []string{
	"a", "A", "a/b", "a%2Fb", "a:b", "a|b", `a\b`, "a/b/c", "a#b", "1", "01", "1.0", "-1", "nil", "*", "?", "[a-z]", "^$",
	`"quoted"`, "'quoted'", "`quoted`", "%", "%%s%d", "$1", "a,b", "a;b", "a=b&c=d", "lock:a", "~", "é", "e\u0301",
	"ключ/日本語/🔒", "\u202eabc", strings.Repeat("x", locker.MaxKeyBytes), strings.Repeat("🔒", locker.MaxKeyBytes/4),
}

var keyCases = []testCase{
	{"every key is a lock of its own, whatever its name", func(t T, h Harness) {
		claims := make([]locker.Claim, len(oddNames))
		for i, name := range oddNames {
			key, err := locker.ParseKey(name)
			if err != nil {
				t.Fatal(err)
			}
			claims[i], _ = h.take(t, key, long)
		}
		for _, c := range claims {
			h.mustBeHeld(t, c.Key)
			wantErr(t, "renew "+string(c.Key), h.renew(t, h.renewal(c, 2*long))[0], nil)
		}
		for i, c := range claims {
			h.mustRelease(t, c)
			for _, other := range claims[i+1:] {
				h.mustBeOurs(t, other)
			}
		}
	}},
	{"tokens are compared byte by byte", func(t T, h Harness) {
		for token, likeness := range map[string][]string{
			"ls1/pod/ABC":        {"ls1/pod/abc", "ls1/pod/AB", "ls1/pod/ABCD", "ls1/pod/ABC ", " ls1/pod/ABC", "ls1/pod/ABC\x00", "*"},
			"1":                  {"1.0", "01", "+1", "1e0", " 1"},
			"ls1/pod/\x00\xff\n": {"ls1/pod/", "ls1/pod/\x00", "ls1/pod/\x00\xff", "ls1/pod/\x00\xfe\n"},
			"9007199254740993":   {"9007199254740992"},
		} {
			c := h.claim("k", long)
			c.Token = locker.TokenFromStore(token)
			h.mustAcquire(t, c)
			for i, like := range likeness {
				stranger := h.claim("k", long)
				stranger.Token = locker.TokenFromStore(like)
				if _, err := h.acquire(t, stranger); err == nil {
					t.Errorf("likeness %d of %q was granted its key", i, token)
				}
				wantErr(t, "renew", h.renew(t, h.renewal(stranger, long))[0], locker.ErrTaken)
				wantErr(t, "release", h.release(t, surrender(stranger, 0))[0], locker.ErrTaken)
			}
			h.mustRelease(t, c)
		}
	}},
	{"notes and labels come back as they were given", func(t T, h Harness) {
		c := h.claim("k", long)
		c.Holder = "namespace/pod-0"
		c.Token = locker.NewToken(c.Holder)
		c.Note = `a "note" with 'quotes', \, %s, a line` + "\nbreak, a zero \x00 and 🔒 " + strings.Repeat("ж", 100)
		h.mustAcquire(t, c)
		o := h.mustBeHeld(t, "k")
		if o.Holder == nil || o.Holder.Pod != c.Holder || o.Holder.Note != c.Note {
			t.Errorf("got %+v, want %q with %q", o.Holder, c.Holder, c.Note)
		}
	}},
}
