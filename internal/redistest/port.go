package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// given has the ports that this process was given. None is given twice: a server
// that is down comes back to its own.
var given sync.Map

// freePort returns a port of 127.0.0.1 that nobody listens on at the moment.
// It lies below the range from which Linux takes ports for outgoing
// connections, so that none of those can sit on it while a server is down.
func freePort(t testing.TB) int {
	t.Helper()
	const first, end = 12000, 32000
	var last error
	for range 100 {
		port := first + rand.IntN(end-first)
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		l.Close()
		return port
	}
	t.Fatalf("no free port found: %v", last)
	return 0
}
