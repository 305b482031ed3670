package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
)

// pageHTML is the status page: one file that loads nothing but its own feed.
// It holds nothing of this sidecar, so it is served without the API token.
//
//go:embed page.html
var pageHTML []byte

// page is how the status page is served.
type page struct {
	html   []byte
	policy string // Content-Security-Policy
}

// newPage allows the page's own style and script, by their hashes, to connect
// to where it came from, and nothing else: no other script, no markup made of
// text, no frame, no form. What is shown was named by other people.
func newPage() page {
	return page{html: pageHTML, policy: fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		hashOf(pageHTML, "style"), hashOf(pageHTML, "script"))}
}

// hashOf names the content of the page's only element of that name as a
// policy does.
func hashOf(html []byte, element string) string {
	_, rest, _ := bytes.Cut(html, []byte("<"+element+">"))
	content, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// wantsPage tells whether a browser asks for the page.
func wantsPage(r *http.Request) bool {
	return r.URL.Path == "/" && r.URL.RawPath == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		prefers(r, typeHTML, typeJSON) && prefers(r, typeHTML, typeEvents)
}

func (p page) serve(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", typeHTML+"; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(p.html)))
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	limitWrite(w)
	_, err := w.Write(p.html)
	return err
}
