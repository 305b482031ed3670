package client

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// address is where a sidecar listens.
type address struct {
	url     string // as people write it
	host    string // for the Host header
	network string // as in net.Dial
	dial    string // likewise

	// here says that the sidecar is on this machine, so that its boot-time
	// clock is ours too.
	here bool
}

func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "unix") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// What was given is not shown: it may hold a password.
		return address{}, fmt.Errorf("the URL of a sidecar is http://host:port or unix:///path%s", hintFor(text))
	}
	if u.Scheme == "unix" {
		path := u.Path
		if u.Host != "" || !filepath.IsAbs(path) || strings.HasSuffix(path, "/") {
			return address{}, fmt.Errorf("unix:// is followed by the absolute path of a socket, such as unix:///run/locksidecar/api.sock")
		}
		return address{url: "unix://" + path, host: "localhost", network: "unix", dial: path, here: true}, nil
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	host := u.Hostname()
	if host == "" || strings.Trim(u.Path, "/") != "" {
		return address{}, fmt.Errorf("the URL of a sidecar is http://host:port, without a path")
	}
	ip := net.ParseIP(host)
	return address{
		url: "http://" + u.Host, host: u.Host, network: "tcp", dial: net.JoinHostPort(host, port),
		here: host == "localhost" || ip != nil && ip.IsLoopback(),
	}, nil
}

func hintFor(text string) string {
	switch scheme, _, found := strings.Cut(text, "://"); {
	case found && scheme == "https":
		return "; it speaks no TLS"
	case !found:
		return "; the scheme is missing"
	}
	return ""
}
