package redis

import "net"

// Address is where a server listens.
type Address struct {
	Network string // tcp or unix
	Addr    string // host:port, or the path of a socket
}

// TCP returns the address of a host:port.
func TCP(hostPort string) Address { return Address{"tcp", hostPort} }

// Unix returns the address of a socket in the file system.
func Unix(path string) Address { return Address{"unix", path} }

// String is for people.
func (a Address) String() string { return a.Addr }

// host is the name that a certificate of the server must have if nobody says
// another.
func (a Address) host() (string, error) {
	host, _, err := net.SplitHostPort(a.Addr)
	return host, err
}
