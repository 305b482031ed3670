package redis

import "context"

// servers knows which server decides on a lock, and follows changes.
type servers interface {
	// route returns the server to which a call is to go now. It waits until
	// that is known, or ctx is over; its errors are certain.
	route(ctx context.Context, c *call) (*node, error)

	// known is route that does not wait: it returns nil if no server is known.
	known(c *call) *node

	// owner returns the server that decides on the lock of that name as far as
	// is known, or nil.
	owner(lock string) *node

	// failed is told of calls that were sent to n without success, and which
	// attempt at them that was, from 0. It says whether they are worth sending
	// again: all of them are strays then, and it has waited for as long as
	// there is no point in that.
	failed(ctx context.Context, n *node, strays []stray, attempt int) (again bool)

	// all returns the servers in use, and a channel that is closed when there
	// are others; nil if that never happens.
	all() ([]*node, <-chan struct{})

	// apart tells whether no call may have locks of different slots.
	apart() bool

	close()
}

// single is one server.
type single struct{ n *node }

func (s single) route(context.Context, *call) (*node, error) { return s.n, nil }

func (s single) known(*call) *node { return s.n }

func (s single) owner(string) *node { return s.n }

// failed has calls that met a replica sent again, over a new connection: the
// address may lead to another server by now, as that of a Service does.
func (s single) failed(_ context.Context, _ *node, strays []stray, attempt int) bool {
	for _, s := range strays {
		if s.detour != demoted {
			return false
		}
	}
	return attempt == 0
}

func (s single) all() ([]*node, <-chan struct{}) { return []*node{s.n}, nil }

func (s single) apart() bool { return false }

func (s single) close() { s.n.close() }
