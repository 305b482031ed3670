package main

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker/redis"
)

// RedisAddr is where a Redis server listens.
type RedisAddr struct {
	Network string // tcp or unix
	Address string // host:port, or the socket's path

	scheme   string // empty if the address is not a URL
	noPort   bool   // the URL has none
	username string
	password Secret
	database string // empty if the URL names none
}

// String returns host:port or unix:///path: the address alone, without
// credentials, database and TLS, which are in the settings of that name.
func (a RedisAddr) String() string {
	if a.Network == "unix" {
		return (&url.URL{Scheme: "unix", Path: a.Address}).String()
	}
	return a.Address
}

// RedisAddrs is the setting of that type.
type RedisAddrs []RedisAddr

// Strings returns each address alone.
func (a RedisAddrs) Strings() []string {
	list := make([]string, len(a))
	for i, addr := range a {
		list[i] = addr.String()
	}
	return list
}

// Addresses returns each as the driver takes it.
func (a RedisAddrs) Addresses() []redis.Address {
	list := make([]redis.Address, len(a))
	for i, addr := range a {
		list[i] = redis.Address{Network: addr.Network, Addr: addr.Address}
	}
	return list
}

// Set parses the list. Its errors do not repeat the text, which may hold a
// password.
func (a *RedisAddrs) Set(value string) (err error) {
	*a, err = parseList(value, parseRedisAddr)
	return err
}

const (
	defaultRedisPort    = "6379"
	defaultSentinelPort = "26379"
)

func parseRedisAddr(s string) (RedisAddr, error) {
	scheme, _, isURL := strings.Cut(s, "://")
	if !isURL {
		if err := checkHostPort(s); err != nil {
			return RedisAddr{}, err
		}
		return RedisAddr{Network: "tcp", Address: s}, nil
	}
	// The scheme is told only if it is one: it could be part of a password.
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return RedisAddr{}, errors.New("the URL must begin with redis://, rediss:// or unix://")
	}
	u, err := url.Parse(s)
	if err != nil { // it quotes the URL
		return RedisAddr{}, errors.New("not a valid URL; special characters in user and password must be percent-encoded")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return RedisAddr{}, errors.New("the URL has ? or # in it; options are settings here, and in a password they must be percent-encoded")
	}
	addr := RedisAddr{scheme: scheme}
	if u.User != nil {
		addr.username = u.User.Username()
		if password, ok := u.User.Password(); ok && password != "" {
			addr.password = NewSecret(password)
		}
	}
	if scheme == "unix" {
		addr.Network, addr.Address = "unix", u.Path
		if u.Host != "" {
			return RedisAddr{}, errors.New("the path of the socket must begin with /, as in unix:///run/redis.sock")
		}
		return addr, checkSocketPath(u.Path)
	}
	host := u.Host
	if u.Port() == "" {
		addr.noPort = true
		host = net.JoinHostPort(u.Hostname(), defaultRedisPort)
	}
	addr.Network, addr.Address = "tcp", host
	addr.database = strings.TrimPrefix(u.Path, "/")
	if addr.database != "" {
		if n, err := strconv.Atoi(addr.database); err != nil || n < 0 || n > maxDatabase {
			return RedisAddr{}, errors.New("what follows the host must be the number of a database, as in redis://host:6379/2")
		}
	}
	return addr, checkHostPort(host)
}

// checkHostPort demands a host and a port to dial. Its errors do not repeat
// the text.
func checkHostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil:
		return errors.New("must be host:port (an IPv6 address in square brackets) or a URL")
	case host == "" || strings.ContainsAny(host, "@/ \t\r\n"):
		return errors.New("has no valid host; user and password belong in settings of their own or in a redis:// URL")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has no valid port; it is a number from 1 to 65535")
	}
	return nil
}
