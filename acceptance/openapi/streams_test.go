package openapi

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// stream is an answer that is being read.
type stream struct {
	w        *walk
	call     call
	response *http.Response
	reader   *bufio.Reader
	text     strings.Builder // whole events
}

// stream sends a call that is answered by events with that status.
func (w *walk) stream(status int, c call) *stream {
	w.t.Helper()
	response := w.open(c)
	for again := 0; again < 10 && response.StatusCode != status && response.StatusCode == http.StatusServiceUnavailable; again++ {
		time.Sleep(50 * time.Millisecond) // see unheard
		response = w.open(c)
	}
	if kind := response.Header.Get("Content-Type"); response.StatusCode != status || kind != "text/event-stream" {
		w.t.Fatalf("%s: %d as %q", c, response.StatusCode, kind)
	}
	return &stream{w: w, call: c, response: response, reader: bufio.NewReader(response.Body)}
}

// await reads up to an event of that kind and returns its data.
func (s *stream) await(kind string) map[string]any {
	s.w.t.Helper()
	for {
		var block strings.Builder
		for !strings.HasSuffix(block.String(), "\n\n") {
			line, err := s.reader.ReadString('\n')
			if err != nil {
				s.w.t.Fatalf("%s: no event %q: %v; there were\n%s", s.call, kind, err, s.text.String())
			}
			block.WriteString(line)
		}
		s.text.WriteString(block.String())
		if _, data, ok := strings.Cut(block.String(), "event: "+kind+"\ndata: "); ok {
			var value map[string]any
			if err := json.Unmarshal([]byte(data), &value); err != nil {
				s.w.t.Fatal(err)
			}
			return value
		}
	}
}

// ended checks that nothing follows, and judges the stream.
func (s *stream) ended() {
	s.w.t.Helper()
	if rest, err := io.ReadAll(s.reader); err != nil || len(rest) > 0 {
		s.w.t.Errorf("%s: after the last event comes %q, %v", s.call, rest, err)
	}
	s.close()
}

// close closes the connection, and judges what was read.
func (s *stream) close() {
	s.w.t.Helper()
	_ = s.response.Body.Close()
	s.w.judge(s.call, answerOf(s.response, []byte(s.text.String())))
}

// raw sends bytes that no client library would send and judges the answer as
// one to the call. With half it closes its side behind them.
func (w *walk) raw(outcome string, c call, text string, half bool) {
	w.t.Helper()
	a := w.rawly(text, half)
	if a.outcome() != outcome {
		w.t.Errorf("%q: %s %s, want %s", text, a.outcome(), a.body, outcome)
	}
	c.free = true
	w.judge(c, a)
}

func (w *walk) rawly(text string, half bool) answer {
	w.t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(w.process.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, text); err != nil {
		w.t.Fatal(err)
	}
	if half {
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			w.t.Fatal(err)
		}
	}
	method, _, _ := strings.Cut(text, " ")
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("%q: %v", text, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answerOf(response, body)
}
