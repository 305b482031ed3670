package locker

import (
	"context"
	"time"
)

// Sighting is what was seen at a lock's key at one moment.
type Sighting struct {
	Occupancy

	// Token is the value that is there, whoever wrote it; the zero Token if
	// the key is free.
	Token Token
}

// Breach asks a backend to take one lock away from whoever has it.
type Breach struct {
	Key    Key
	Token  Token  // as it was sighted: what came after it is left alone
	Holder string // label of the former holder, for people; empty if it is not known
}

// Breaker is a backend that can take a lock away from its holder, for the
// person on call. No Locker breaks locks.
type Breaker interface {
	// Sight tells who has a key. The error is ErrKeyConflict for what is not a
	// lock, or has no time to live; it changes nothing.
	Sight(ctx context.Context, key Key) (Sighting, error)

	// Break puts a tombstone in the place of the token and leaves it the time
	// that the token had left, so that the key is free no earlier than the
	// holder's lease can end, and tells how long that is. The line stays as it
	// is. The outcomes:
	//
	//   - nil: the holder cannot renew any more, and is told ErrTaken when it tries.
	//   - ErrTaken: another value is there, ErrGone: the key is free,
	//     ErrKeyConflict: as for Sight. Nothing was changed.
	//   - *StoreError with Certain: nothing was changed and nothing will be.
	//   - any other error: unknown. It can be asked again: a breach that was
	//     carried out is a success again.
	Break(ctx context.Context, b Breach) (left time.Duration, err error)
}
