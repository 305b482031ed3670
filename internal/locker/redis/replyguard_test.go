package redis

import (
	"errors"
	"strings"
	"testing"
)

func TestTheGuardFindsRepliesThatAnnounceTooMuch(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, test := range map[string]struct {
		stream string
		want   error
	}{
		"what Redis says":                  {"+OK\r\n-ERR *999999999999 no\r\n:12\r\n$-1\r\n*-1\r\n$5\r\nhello\r\n*2\r\n$1\r\n$\r\n:1\r\n", nil},
		"a bulk that looks like a header":  {"$14\r\n*999999999999\n\r\n+OK\r\n", nil},
		"a long bulk":                      {"$10000\r\n" + long + "\r\n*1\r\n+OK\r\n", nil},
		"a billion values":                 {"*1000000000\r\n", errOversized},
		"half a gigabyte":                  {"$536870912\r\n", errOversized},
		"deep inside":                      {"*2\r\n*1\r\n$3\r\nabc\r\n%70000\r\n", errOversized},
		"more digits than fit":             {"*99999999999999999999999999\r\n", errOversized},
		"arrays within arrays":             {strings.Repeat("*1\r\n", 1000), errOversized},
		"arrays within later elements":     {strings.Repeat("*2\r\n$1\r\n*\r\n", 1000), errOversized},
		"maps within maps":                 {strings.Repeat("%1\r\n+k\r\n", 1000), errOversized},
		"one array after the other":        {strings.Repeat("*1\r\n*2\r\n*0\r\n*1\r\n:1\r\n", 1000), nil},
		"arrays behind one another in one": {"*1000\r\n" + strings.Repeat("*2\r\n*-1\r\n*2\r\n$0\r\n\r\n$-1\r\n", 1000) + "*1\r\n:1\r\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 7, len(test.stream)} {
				var g replyGuard
				var err error
				for rest := test.stream; rest != "" && err == nil; {
					n := min(piece, len(rest))
					err = g.feed([]byte(rest[:n]))
					rest = rest[n:]
				}
				if !errors.Is(err, test.want) {
					t.Errorf("in pieces of %d: %v, want %v", piece, err, test.want)
				}
			}
		})
	}
}
