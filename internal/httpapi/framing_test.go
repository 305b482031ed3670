package httpapi

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestFramingFollowsRequestsHoweverTheyAreCut(t *testing.T) {
	one := "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncd"
	two := "GET /b HTTP/1.1\r\nHost: b\r\n\r\n"
	stream := one + two + "\r\n" + one
	ends := map[int]bool{0: true, len(one): true, len(one + two): true, len(one+two) + 2: true, len(stream): true}
	for size := 1; size <= len(stream); size++ {
		var f framing
		for at := 0; at < len(stream); at += size {
			f.feed([]byte(stream[at:min(at+size, len(stream))]))
			if end := min(at+size, len(stream)); f.quiet() != ends[end] {
				t.Errorf("cut to %d bytes: quiet %v after %d", size, f.quiet(), end)
			}
		}
		if f.problem != "" {
			t.Errorf("cut to %d bytes: %s", size, f.problem)
		}
	}
}

// FuzzFraming holds that whatever two parsers could see differently is found:
// where nothing is found, net/http and framing agree where requests end.
func FuzzFraming(f *testing.F) {
	f.Add("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\nHost: b\r\n\r\n")
	f.Add("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f.Add("GET / HTTP/1.1\nHost: a\n\n")
	f.Add("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		r := bufio.NewReader(strings.NewReader(stream))
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.ReadAll(request.Body); err != nil || len(request.TransferEncoding) > 0 {
			return // the connection ends with this request
		}
		behind, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		end := len(stream) - len(behind)
		var own framing
		own.feed([]byte(stream[:end-1]))
		early := own.quiet()
		own.feed([]byte(stream[end-1 : end]))
		if own.problem == "" && (early || !own.quiet()) {
			t.Errorf("net/http ends a request where framing does not: %q", stream[:end])
		}
	})
}
