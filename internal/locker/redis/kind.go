package redis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Kind says what the addresses of a Config lead to.
type Kind string

const (
	Single   Kind = ""         // one server
	Sentinel Kind = "sentinel" // Sentinels, which know the master
	Cluster  Kind = "cluster"  // some of the nodes of a Redis Cluster
)

// WrongKindError says that at an address there is another kind of server than
// the configuration expects. It holds nothing that the server said.
type WrongKindError struct{ Addr, Expected, Found string }

func (e *WrongKindError) Error() string {
	return fmt.Sprintf("at %s there is %s where %s is expected", e.Addr, e.Found, e.Expected)
}

// What there can be at an address.
const (
	aServer      = "a Redis server"
	aSentinel    = "a Redis Sentinel"
	aClusterNode = "a node of a Redis Cluster"
	aLoneServer  = "a Redis server without cluster support"
	noServer     = "something that does not know the commands of a Redis server, such as a Sentinel,"
	noSentinel   = "something that does not know the commands of a Sentinel, such as a Redis server,"
)

// wrongKind returns the failure of a call that met another kind of server.
func wrongKind(a Address, expected, found string) error {
	return &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: &WrongKindError{a.String(), expected, found}}
}

// unknownCommand tells whether an error is that a server does not know the
// command.
func unknownCommand(err error) bool {
	text, ok := asReply(err)
	if !ok {
		text, ok = replyIn(err)
	}
	return ok && strings.HasPrefix(text, "ERR unknown command")
}

// crossSlot tells whether an error is that a cluster does not do what a single
// server does.
func crossSlot(err error) bool {
	text, _ := replyIn(err)
	return strings.HasPrefix(text, "CROSSSLOT")
}

var errNotMaster = errors.New("the server is not a master")
