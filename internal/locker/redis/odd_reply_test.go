package redis

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// elementsOf takes an array of strings and numbers apart.
func elementsOf(reply []byte) (elements [][]byte) {
	line := func() []byte {
		end := bytes.Index(reply, []byte("\r\n")) + 2
		l := reply[:end]
		reply = reply[end:]
		return l
	}
	line()
	for len(reply) > 0 {
		e := line()
		if e[0] == '$' {
			n, _ := strconv.Atoi(string(e[1 : len(e)-2]))
			e = append(bytes.Clone(e), reply[:n+2]...)
			reply = reply[n+2:]
		}
		elements = append(elements, e)
	}
	return elements
}

// A store that says what it never says is a failure of the store, whatever it
// is, and no end of the process.
func TestRepliesThatAreTooShortOrOfAnotherTypeAreErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.Start(t, "tcp", server.Addr())
	direct := open(t, server, Config{})
	b := openGuarded(t, server, Config{Addrs: []Address{TCP(proxy.Addr())}, RestartGuard: time.Minute})
	var length atomic.Int32 // of the latest reply, before it was changed
	spoil := func(change func([][]byte) [][]byte) {
		proxy.SetRule(func(c faultproxy.Command) (a faultproxy.Action) {
			a.Replace = func(reply []byte) []byte {
				if c.Script == "" || reply[0] != '*' {
					return reply
				}
				elements := elementsOf(reply)
				length.Store(int32(len(elements)))
				elements = change(elements)
				return append([]byte("*"+strconv.Itoa(len(elements))+"\r\n"), bytes.Join(elements, nil)...)
			}
			return a
		})
	}
	turn := locker.Turn{Process: "p", Call: 1, WaitLeft: time.Minute}
	calls := map[string]func(held, free locker.Claim) error{
		"acquire":         func(_, free locker.Claim) error { _, err := b.Acquire(t.Context(), free); return err },
		"be refused":      func(held, _ locker.Claim) error { _, err := b.Acquire(t.Context(), claimFor(held.Key)); return err },
		"acquire in line": func(_, free locker.Claim) error { _, err := b.AcquireInLine(t.Context(), free, turn); return err },
		"wait in line": func(held, _ locker.Claim) error {
			_, err := b.AcquireInLine(t.Context(), claimFor(held.Key), turn)
			return err
		},
		"leave":    func(held, _ locker.Claim) error { return b.Leave(t.Context(), held.Key, turn) },
		"renew":    func(held, _ locker.Claim) error { return renewOne(t.Context(), b, held) },
		"release":  func(held, _ locker.Claim) error { return releaseOne(t.Context(), b, held) },
		"inspect":  func(held, _ locker.Claim) error { _, err := b.Inspect(t.Context(), held.Key); return err },
		"sight":    func(held, _ locker.Claim) error { _, err := b.Sight(t.Context(), held.Key); return err },
		"annotate": func(held, _ locker.Claim) error { return b.Annotate(t.Context(), held.Key, held.Token, "note") },
		"break": func(held, _ locker.Claim) error {
			_, err := b.Break(t.Context(), locker.Breach{Key: held.Key, Token: held.Token})
			return err
		},
		"heal": func(held, _ locker.Claim) error {
			return b.Heal(t.Context(), []locker.Remedy{{Key: held.Key, Token: held.Token, Keep: held.Keep, Fence: 1, NotAfter: soon()}})[0].Err
		},
		"raise": func(held, _ locker.Claim) error {
			_, err := b.Raise(t.Context(), locker.Raising{Key: held.Key, Token: held.Token, Fence: 1, NotAfter: soon()})
			return err
		},
		"hand over": func(held, _ locker.Claim) error {
			v, _, err := b.HandOver(t.Context(), surrenderOf(held), claimFor(held.Key), turn)
			if v.Err != nil {
				return v.Err
			}
			return err
		},
		"guard": func(_, _ locker.Claim) error { _, err := b.Guard(t.Context()); return err },
	}
	others := []string{"$-1\r\n", ":7\r\n", "$0\r\n\r\n", "$1\r\nx\r\n", "*0\r\n", "*1\r\n$2\r\nok\r\n"}
	for name, do := range calls {
		t.Run(name, func(t *testing.T) {
			try := func(number int) error {
				held, free := claimFor(locker.Key(fmt.Sprint(name, number, "held"))), claimFor(locker.Key(fmt.Sprint(name, number, "free")))
				mustAcquire(t, direct, held)
				return do(held, free)
			}
			n := 1
			for at := 0; at < n; at++ {
				spoil(func(elements [][]byte) [][]byte { return elements[:min(at, len(elements))] })
				if err := try(at); err == nil {
					t.Errorf("a reply of %d elements is no error", at)
				}
				n = int(length.Load())
				for i, other := range others {
					spoil(func(elements [][]byte) [][]byte { elements[at] = []byte(other); return elements })
					_ = try(1000*(i+1) + at) // some may be meant
				}
			}
		})
	}
}
