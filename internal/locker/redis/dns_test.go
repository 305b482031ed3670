package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// nameServer is a DNS server that knows one address for all names, or none.
type nameServer struct {
	mu sync.Mutex
	ip net.IP // nil: it fails
}

func (n *nameServer) set(ip net.IP) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ip = ip
}

// answer makes the answer to a query: its own question, and an address if it
// asks for one of version 4.
func (n *nameServer) answer(query []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := 12 // the header
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the name's end, type, class
	reply := append([]byte(nil), query[:end]...)
	reply[2], reply[3] = 0x81, 0x80 // an answer
	binary.BigEndian.PutUint16(reply[8:], 0)
	binary.BigEndian.PutUint16(reply[10:], 0) // nothing besides
	if n.ip == nil {
		reply[3] |= 2 // it fails
		return reply
	}
	if query[end-3] == 1 { // type A
		binary.BigEndian.PutUint16(reply[6:], 1)
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the same name, for no time
		reply = append(reply, n.ip.To4()...)
	}
	return reply
}

// useNameServer has this process ask a name server of its own until the test
// ends, which therefore must not run beside others.
func useNameServer(t *testing.T) *nameServer {
	n := &nameServer{}
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { // a stream: each message is preceded by its length
			defer theirs.Close()
			for {
				var length [2]byte
				if _, err := io.ReadFull(theirs, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(theirs, query); err != nil {
					return
				}
				reply := n.answer(query)
				if _, err := theirs.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}}
	return n
}

// relay accepts connections at an address and leads them to a server.
type relay struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func startRelay(t *testing.T, at, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l}
	var running sync.WaitGroup
	t.Cleanup(func() { r.close(); running.Wait() })
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(out, in); out.Close() })
			running.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		}
	})
	return r
}

// close ends all that is relayed.
func (r *relay) close() {
	r.l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

// The name is looked up for every connection that is opened, and what was found
// before is not kept; connections that are open need no name.
func TestANameThatLeadsElsewhereIsFollowedAndItsLackPutUpWith(t *testing.T) {
	old, next := redistest.Start(t), redistest.Start(t)
	names := useNameServer(t)
	toOld := startRelay(t, "127.0.0.2:0", old.Addr())
	port := toOld.l.Addr().(*net.TCPAddr).Port
	startRelay(t, net.JoinHostPort("127.0.0.3", strconv.Itoa(port)), next.Addr())
	names.set(net.IPv4(127, 0, 0, 2))
	b := open(t, nil, Config{Addrs: []Address{TCP(net.JoinHostPort("redis.example", strconv.Itoa(port)))}})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	if err := b.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}

	names.set(nil)
	for range 3 {
		if err := renewOne(t.Context(), b, c); err != nil {
			t.Errorf("renew without a name server: %v", err)
		}
	}
	toOld.close() // now they have to be opened anew
	_, err := b.Acquire(t.Context(), claimFor("another"))
	var failure *locker.StoreError
	if !errors.As(err, &failure) || failure.Reason != locker.StoreUnavailable && failure.Reason != locker.StoreBroken {
		t.Errorf("acquire without a name server: %v", err)
	}
	eventually(t, "it is known that there is no server", func() bool {
		_, err := b.Acquire(t.Context(), claimFor("another"))
		return errors.As(err, &failure) && failure.Reason == locker.StoreUnavailable && failure.Certain
	})

	names.set(net.IPv4(127, 0, 0, 3))
	since := time.Now()
	eventually(t, "the server of now is found", func() bool {
		_, err := b.Acquire(t.Context(), claimFor("another"))
		return err == nil
	})
	t.Logf("found after %v", time.Since(since))
	if _, ok := next.Get(b.keys.lock("another")); !ok {
		t.Error("the lock is elsewhere")
	}
}
