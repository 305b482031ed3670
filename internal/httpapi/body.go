package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxBodyBytes is the largest body that is read.
const maxBodyBytes = 4 << 10

// wholeBody is a body that has been read to its end.
type wholeBody struct {
	bytes.Reader
	content []byte
}

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }

// contentOf returns the body that readBody has read, or nil if there is none.
func contentOf(r *http.Request) []byte {
	if body, ok := r.Body.(*wholeBody); ok {
		return body.content
	}
	return nil
}

// readBody reads the body to its end and puts what it read in its place. Until
// the end has been read net/http does not look whether the caller has gone,
// and a malformed chunk shows only as an error of reading: nothing may be done
// before.
func readBody(w http.ResponseWriter, r *http.Request) error {
	if c := connOf(r); c != nil {
		if problem := c.framingProblem(); problem != "" {
			return refuseAndClose("invalid_request", problem)
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return refuseAndClose("unsupported_media_type", "the body must not be encoded; send it without Content-Encoding")
	}
	if r.ContentLength > maxBodyBytes {
		return refuseAndClose("body_too_large", fmt.Sprintf("at most %d bytes are taken", maxBodyBytes))
	}
	if r.ContentLength == 0 {
		return nil
	}
	content, err := readWhole(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuseAndClose("body_too_large", fmt.Sprintf("at most %d bytes are taken", maxBodyBytes))
	case err != nil:
		return refuseAndClose("invalid_body", "the body could not be read to its end; nothing was done")
	}
	body := &wholeBody{content: content}
	body.Reset(content)
	r.Body = body
	return nil
}

// readWhole reads a body of at most maxBodyBytes, and of the length that was
// announced if one was.
func readWhole(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	}
	content := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, content)
	return content, err
}
