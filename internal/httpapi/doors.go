package httpapi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// DefaultDoors are where the API listens if nothing else is said.
const DefaultDoors = "127.0.0.1:5625,[::1]:5625"

const unixScheme = "unix://"

// OpenDoors listens on a comma-separated list of doors: an IP address with a
// port, localhost with a port (both loopback addresses), a port alone (every
// address), or unix:///path. It never listens anywhere else instead.
//
// A loopback address of IPv6 that cannot be had is a warning if another door
// is open: many pods have no IPv6. All else that fails closes what was opened
// and is the error. Addresses that other machines can reach are refused unless
// withToken says that the API asks for one.
func OpenDoors(list string, withToken bool, log *slog.Logger) ([]net.Listener, error) {
	var open []net.Listener
	var absent error
	for address := range strings.SplitSeq(list, ",") {
		for _, door := range bothLoopbacks(strings.TrimSpace(address)) {
			l, optional, err := openDoor(door, withToken)
			switch {
			case err == nil:
				open = append(open, l)
			case optional:
				log.Warn("this door stays closed", "address", door, "err", err)
				absent = err
			default:
				for _, l := range open {
					_ = l.Close()
				}
				return nil, fmt.Errorf("open %s: %w", door, err)
			}
		}
	}
	if len(open) == 0 {
		return nil, fmt.Errorf("no door could be opened: %w", absent)
	}
	return open, nil
}

func bothLoopbacks(address string) []string {
	if port, ok := strings.CutPrefix(address, "localhost:"); ok {
		return []string{"127.0.0.1:" + port, "[::1]:" + port}
	}
	return []string{address}
}

func openDoor(address string, withToken bool) (l net.Listener, optional bool, err error) {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		l, err = listenUnix(path)
		return l, false, err
	}
	at, err := netip.ParseAddrPort(spellOut(address))
	if err != nil {
		return nil, false, errors.New("a door is an IP address and a port, localhost and a port, or unix:///path")
	}
	ip := at.Addr().Unmap()
	if !ip.IsLoopback() && !withToken {
		return nil, false, errors.New("others could reach this address, so API_TOKEN_FILE must be set")
	}
	network := "tcp"
	if ip.Is4() {
		network = "tcp4"
	} else if ip.IsLoopback() {
		network = "tcp6"
	}
	// Where there is no IPv6, [::] cannot be had, but every address can.
	host := strings.TrimPrefix(netip.AddrPortFrom(ip, at.Port()).String(), "[::]")
	l, err = net.Listen(network, host)
	return l, network == "tcp6", err
}

// spellOut puts in the host that a port alone leaves out.
func spellOut(address string) string {
	if strings.HasPrefix(address, ":") {
		return "[::]" + address
	}
	return address
}

// listenUnix listens on a socket that its owner and group may use. A socket
// whose process has died is replaced, one that is served is not, nor is a file
// of any other kind. The listener removes the socket when it is closed.
func listenUnix(path string) (net.Listener, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, errors.New("the path of a socket must begin with '/'")
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The mode must hold from the first moment, so it cannot be set afterwards.
	before := syscall.Umask(0o117)
	defer syscall.Umask(before)
	return net.Listen("unix", path)
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("something that is not a socket is there")
	}
	served, err := net.Dial("unix", path)
	if err == nil {
		_ = served.Close()
		return errors.New("another process serves this socket")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
