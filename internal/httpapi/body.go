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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuseAndClose("body_too_large", fmt.Sprintf("at most %d bytes are taken", maxBodyBytes))
	case err != nil:
		return refuseAndClose("invalid_body", "the body could not be read to its end; nothing was done")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
