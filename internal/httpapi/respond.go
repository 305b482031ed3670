package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// writeTimeout bounds the writing of an answer: a caller that does not read
// must not hold anything up.
const writeTimeout = 5 * time.Second

const (
	typeForm    = "application/x-www-form-urlencoded"
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typePlain   = "text/plain"
	typeEvents  = "text/event-stream"
	typeHTML    = "text/html"
)

// respond answers with the value: as JSON, or as lines for a shell if the
// caller would rather have plain text.
func respond(w http.ResponseWriter, r *http.Request, status int, value any) error {
	return respondAs(w, status, typeJSON, prefers(r, typePlain, typeJSON), value)
}

// respondJSON answers with what has no lines: lists.
func respondJSON(w http.ResponseWriter, value any) error {
	return respondAs(w, http.StatusOK, typeJSON, false, value)
}

// respondProblem answers with a problem. It keeps to the caller's wish for
// plain text: a script that evaluates the answer must not run a note that
// another pod wrote.
func respondProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	_ = respondAs(w, p.Status, typeProblem, prefers(r, typePlain, typeJSON), p) // one who does not hear of it has gone
}

func respondAs(w http.ResponseWriter, status int, contentType string, plain bool, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if plain {
		if body, err = ShellLines(body); err != nil {
			return err
		}
		contentType = typePlain + "; charset=utf-8"
	} else {
		body = append(body, '\n')
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	limitWrite(w)
	w.WriteHeader(status)
	_, err = w.Write(body)
	return err
}

// respondEmpty answers without a body.
func respondEmpty(w http.ResponseWriter, status int) {
	limitWrite(w)
	w.WriteHeader(status)
}

func limitWrite(w http.ResponseWriter) {
	// Recorders have no deadlines, and need none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
