package redis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

const defaultPort = "6379"

// address says where a server is and what the URL that named it said besides.
type address struct {
	network  string // tcp or unix
	addr     string // host:port, or the path of a socket
	tls      bool
	username string
	password string
	db       int // -1 if not said
}

// parseAddress reads host, host:port, redis://, rediss:// or unix://. Its
// errors do not quote the text, in which there may be a password.
func parseAddress(text string) (address, error) {
	if !strings.Contains(text, "://") {
		return parseHostPort(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return address{}, errors.New("not a valid URL")
	}
	a := address{db: -1}
	switch u.Scheme {
	case "redis", "rediss":
		a, err = parseHostPort(u.Host)
		a.tls = u.Scheme == "rediss"
		if path := strings.Trim(u.Path, "/"); err == nil && path != "" {
			a.db, err = parseDB(path)
		}
		if u.RawQuery != "" && err == nil {
			err = errors.New("the URL may have no query")
		}
	case "unix":
		a.network, a.addr = "unix", u.Path
		if u.Host != "" || u.Path == "" {
			return address{}, errors.New("a socket is named by an absolute path: unix:///path")
		}
		for name, values := range u.Query() {
			if name != "db" || len(values) != 1 {
				return address{}, errors.New("the only query that a unix URL may have is db=N")
			}
			a.db, err = parseDB(values[0])
		}
	default:
		return address{}, fmt.Errorf("the scheme %q is none of redis, rediss, unix", u.Scheme)
	}
	if u.Fragment != "" && err == nil {
		err = errors.New("the URL may have no fragment; a '#' in a password is written %23")
	}
	a.username = u.User.Username()
	a.password, _ = u.User.Password()
	return a, err
}

func parseHostPort(text string) (address, error) {
	a := address{network: "tcp", db: -1}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return a, errors.New("not of the form host:port")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return a, errors.New("the port is not a number from 1 to 65535")
	}
	if host == "" || strings.ContainsAny(host, " /@") {
		return a, errors.New("there is no valid host name")
	}
	a.addr = net.JoinHostPort(host, port)
	return a, nil
}

func parseDB(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, errors.New("the database is not a number")
	}
	return n, nil
}
