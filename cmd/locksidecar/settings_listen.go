package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// maxSocketPath is the longest path that Linux takes for a socket, in bytes.
const maxSocketPath = 107

func checkSocketPath(path string) error {
	if !strings.HasPrefix(path, "/") || len(path) < 2 {
		return errors.New("the path of the socket must begin with /, as in unix:///run/locksidecar.sock")
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path of the socket has %d bytes; at most %d are possible", len(path), maxSocketPath)
	}
	return nil
}

// ListenAddr is where a door of ours listens, ready for [net.Listen].
type ListenAddr struct {
	Network string // tcp or unix
	Address string // host:port, where an empty host means every address; or the socket's path
}

func (a ListenAddr) String() string {
	if a.Network == "unix" {
		return "unix://" + a.Address
	}
	return a.Address
}

// Local tells whether only this pod can reach the address: loopback or a
// socket in the file system.
func (a ListenAddr) Local() bool {
	if a.Network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(a.Address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// collides tells whether both addresses cannot be listened on at a time.
func (a ListenAddr) collides(b ListenAddr) bool {
	if a.Network != b.Network {
		return false
	}
	if a.Network == "unix" {
		return a.Address == b.Address
	}
	ipA, portA := a.tcp()
	ipB, portB := b.tcp()
	return portA == portB && portA != 0 && (ipA == ipB || ipA.IsUnspecified() || ipB.IsUnspecified())
}

// tcp returns the address in the one spelling that it has as a number. To the
// kernel ::ffff:127.0.0.1 is 127.0.0.1, and so is localhost; the net package
// listens on every address, of either family, for any that is unspecified.
func (a ListenAddr) tcp() (ip netip.Addr, port uint64) {
	host, digits, _ := net.SplitHostPort(a.Address)
	port, _ = strconv.ParseUint(digits, 10, 16) // parseListenAddr has seen to it
	switch host {
	case "":
		return netip.IPv6Unspecified(), port
	case "localhost":
		host = "127.0.0.1"
	}
	ip, _ = netip.ParseAddr(host)
	return ip.Unmap(), port
}

func parseListenAddr(s string) (ListenAddr, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		return ListenAddr{"unix", path}, checkSocketPath(path)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, "/@ \t") {
		return ListenAddr{}, fmt.Errorf("%q is neither host:port (an IPv6 address in square brackets) nor unix:///path", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return ListenAddr{}, fmt.Errorf("%q has no valid port; it is a number from 0 (any free one) to 65535", s)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		return ListenAddr{}, fmt.Errorf("%q names a host; a door is an IP address of this pod, or localhost", s)
	}
	return ListenAddr{"tcp", s}, nil
}

// ListenAddrs is the setting of that type.
type ListenAddrs []ListenAddr

// Set parses the list.
func (a *ListenAddrs) Set(value string) (err error) {
	*a, err = parseList(value, parseListenAddr)
	return err
}

// AdminAddr is where the admin door listens, if it does.
type AdminAddr struct{ ListenAddr }

// Off tells whether there is to be no admin door.
func (a AdminAddr) Off() bool { return a.Network == "" }

// Set parses host:port or off.
func (a *AdminAddr) Set(value string) error {
	if value == "off" {
		*a = AdminAddr{}
		return nil
	}
	addr, err := parseListenAddr(value)
	if err != nil || addr.Network != "tcp" {
		return fmt.Errorf("%q is neither host:port nor off", value)
	}
	*a = AdminAddr{addr}
	return nil
}
