// Package httpapi is the face of the sidecar: requests in, status codes out.
// It has two doors, the lock API ([New]) and the admin door ([NewAdmin]), and
// decides nothing about locks: whether one is held is asked of [Locks] with
// every request.
//
// What HTTP adds to a lock is the caller that goes away. A grant whose answer
// did not arrive is given back; see delivery.go for how that is known.
package httpapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Locks is what the API needs of a [locker.Locker].
type Locks interface {
	// Acquire takes a lock, or returns the one that the same owner holds
	// (repeated). It blocks for at most r.Wait and the store timeout. If ctx is
	// over by then, nothing is held and the error is locker.ErrCallerGone. A
	// success is followed by exactly one of GiveBack and Cleared.
	//
	// The other errors: *locker.HeldError, *locker.MismatchError,
	// *locker.InvalidError, *locker.StoreError, and locker's ErrKeyConflict,
	// ErrOwnerBusy, ErrTooManyLocks, ErrTooManyWaiters, ErrShuttingDown, ErrDraining,
	// ErrNotRecorded, ErrAcquireUnresolved and ErrUnsupported.
	Acquire(ctx context.Context, r locker.Request) (st locker.Status, repeated bool, err error)

	// GiveBack says that an answer which granted a lock has not arrived.
	GiveBack(id locker.GrantID)

	// Cleared says that the answer had arrived, and that the connection over
	// which it was told has closed.
	Cleared(id locker.GrantID)

	// Delivered says that the answer has arrived, while the connection is still
	// open. It is told of grants that are not bound, if Config.Journaled.
	Delivered(id locker.GrantID)

	// Lasts tells whether a grant is held. It does not count as an answer.
	Lasts(id locker.GrantID) bool

	// Unbind says how the connection has ended to which a grant was bound. After
	// the success of a request that is Bound it takes the place of GiveBack and
	// Cleared. It blocks for at most the store timeout.
	Unbind(id locker.GrantID, how locker.Parting)

	// Follow follows a grant to its end; see locker.Locker. The error is
	// locker.ErrNotHeld.
	Follow(id locker.GrantID, changed func()) (*locker.Watch, error)

	// Get describes what is held now. The errors: locker.ErrNotHeld,
	// *locker.LostError, locker.ErrOwnerMismatch.
	Get(key locker.Key, h locker.Handle) (locker.Status, error)

	// Inspect asks the store who has a key. It fails with a *locker.StoreError
	// or locker.ErrUnsupported.
	Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error)

	// Extend changes what is held and extends it; it never acquires. The
	// errors: as Get, and *locker.StoreError, locker.ErrNotRecorded,
	// locker.ErrExtendUnconfirmed.
	Extend(ctx context.Context, key locker.Key, h locker.Handle, c locker.Changes) (locker.Status, error)

	// Release gives a lock back. The errors: as Get, and
	// *locker.UnconfirmedError.
	Release(ctx context.Context, key locker.Key, h locker.Handle, o locker.ReleaseOptions) error

	// ReleaseWhere gives back all that the owner holds, or all that is held.
	ReleaseWhere(ctx context.Context, owner string, all bool) (released, unconfirmed []locker.Key)

	// List returns all that is held, asked for, given back or lost, newest first.
	List() []locker.Entry

	// Overview is List for the status page: in part, and for people only.
	Overview(q locker.Query) locker.Overview

	// Changes returns a channel that is closed at the next change to either.
	Changes() <-chan struct{}

	// Drain refuses new locks from now on.
	Drain()
}

// Config is what the API needs to know. All fields without a default named
// here must be set.
type Config struct {
	Locks   Locks
	Log     *slog.Logger
	Version string // shown on the status page
	Holder  string // label of this pod: shown, and refused as an owner
	Backend string // what the locks are kept in: shown on the status page
	Scope   string // equal for sidecars that exclude each other: shown there

	// Reserved are further names that are refused as an owner, since each
	// would name every worker of the pod: the host name.
	Reserved []string

	Journaled bool // Locks outlives this process in part, so it is told of Delivered

	DefaultTTL     time.Duration
	MaxTTL         time.Duration
	DefaultMaxHold time.Duration // 0 for none
	MaxWait        time.Duration

	// AllowedHosts are accepted in the Host header beside localhost,
	// 127.0.0.1 and [::1]; names or addresses without a port.
	AllowedHosts []string

	// Token returns the API token as it is now; nil if none is asked for. It
	// is called with every request, so that a rotated token counts at once.
	Token func() (string, error)

	// Quit begins the shutdown and returns at once. It is called after the
	// answer to POST /quit has been written.
	Quit func()

	// Health is asked by the status page and by /readyz.
	Health func(context.Context) Health

	Now locker.Clock // the clock of Locks; default locker.BootTime

	MaxConnections int // default 8192; more are refused with 429
}

// Health is what can be said of the sidecar in public: no words of a driver.
type Health struct {
	Problem  string   // why the store cannot be used; empty if it answers
	Journal  string   // why no new lock can be recorded; empty if it can, or need not be
	Draining bool     // new locks are refused
	Warnings []string // what an operator should look at
}
