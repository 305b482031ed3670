package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// gate decides whether a request may come in at all.
type gate struct {
	hosts  []string
	origin *http.CrossOriginProtection
	token  func() (string, error)
}

func newGate(cfg Config) gate {
	return gate{
		hosts:  append([]string{"localhost", "127.0.0.1", "[::1]"}, cfg.AllowedHosts...),
		origin: http.NewCrossOriginProtection(),
		token:  cfg.Token,
	}
}

func (g *gate) admit(r *http.Request) error {
	if host, ok := hostname(r.Host); (!ok || !g.knows(host)) && !overUnixSocket(r) {
		return refuse("forbidden_host", "the Host header must be localhost, 127.0.0.1, [::1] or one of ALLOWED_HOSTS")
	}
	if err := g.origin.Check(r); err != nil {
		return refuse("cross_origin", "")
	}
	if g.token == nil || wantsPage(r) {
		return nil
	}
	return g.authorize(r.Header.Values("Authorization"))
}

func (g *gate) knows(host string) bool {
	return slices.ContainsFunc(g.hosts, func(known string) bool { return strings.EqualFold(known, host) })
}

// overUnixSocket tells whether the request came over a Unix socket. Any Host
// will do there: no browser can be led to one, and clients have to make one up.
func overUnixSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

// hostname returns a Host header without its port; ok is false if it is not
// of the form host or host:port. IPv6 addresses keep their brackets.
func hostname(host string) (name string, ok bool) {
	name, port := host, ""
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']') + 1
		name, port = host[:end], host[end:]
	} else if colon := strings.IndexByte(host, ':'); colon >= 0 {
		name, port = host[:colon], host[colon:]
	}
	if port != "" && (port[0] != ':' || strings.Trim(port[1:], "0123456789") != "") {
		return "", false
	}
	return name, name != ""
}

// authorize compares the bearer token in a time that tells nothing of it.
func (g *gate) authorize(headers []string) error {
	want, err := g.token()
	if err == nil && want == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return fmt.Errorf("%w%w", refuse("token_unavailable", ""), err)
	}
	if len(headers) != 1 {
		return refuse("unauthorized", "send one header: Authorization: Bearer …")
	}
	scheme, given, _ := strings.Cut(headers[0], " ")
	have, need := sha256.Sum256([]byte(strings.Trim(given, " "))), sha256.Sum256([]byte(want))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(have[:], need[:]) != 1 {
		return refuse("unauthorized", "")
	}
	return nil
}
