package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOneConnectionServesManyRequests(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.Method {
		case http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%s %s %s", r.URL, body, r.RemoteAddr)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.(http.Flusher).Flush() // makes the answer chunked
		}
	}))
	defer srv.Close()
	conn, err := dialHTTP(t.Context(), strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	for range 3 {
		if status, err := conn.do(http.MethodPost, "/locks/k", "ttl=30s"); status != http.StatusCreated || err != nil {
			t.Fatalf("POST: %d, %v", status, err)
		}
		if !strings.HasPrefix(string(conn.body), "/locks/k ttl=30s 127.0.0.1:") {
			t.Fatalf("POST: the body is %q", conn.body)
		}
		if status, err := conn.do(http.MethodDelete, "/locks/k", ""); status != http.StatusNoContent || err != nil {
			t.Fatalf("DELETE: %d, %v", status, err)
		}
	}
	err = conn.want(http.StatusOK, http.MethodPost, "/locks/k", "ttl=30s")
	if err == nil || !strings.Contains(err.Error(), "201 instead of 200: /locks/k ttl=30s") {
		t.Errorf("the error does not show the unwanted answer: %v", err)
	}
	if status, err := conn.do(http.MethodGet, "/", ""); err == nil {
		t.Errorf("an answer of unknown length was taken for complete: %d", status)
	}
}

func TestAnAnswerThatIsNotHTTPIsAnError(t *testing.T) {
	for _, answer := range []string{"", "\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"} {
		c := &httpConn{answer: bufio.NewReader(strings.NewReader(answer))}
		if status, err := c.readAnswer(); err == nil {
			t.Errorf("%q was read as %d", answer, status)
		}
	}
}
