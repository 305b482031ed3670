package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// lockSource is where exec takes its lock from.
type lockSource interface {
	// take takes the lock, and stands in line for it for at most wait. Its
	// errors have an exit code; those of the API are *client.RefusedError.
	take(ctx context.Context, wait time.Duration) (heldLock, error)

	// close lets go of everything. It blocks, but not for long.
	close()
}

// heldLock is a lock that exec holds.
type heldLock interface {
	about() lockInfo

	// next waits for the next news of the lock; an error says that there will
	// be none, because it is not held any more or because ctx is over.
	next(ctx context.Context) (lockNews, error)

	// release gives the lock back and returns once that is confirmed, or has
	// failed; freeNow does not wait for the end of its minimum hold.
	release(ctx context.Context, freeNow bool) error
}

// lockInfo is what exec needs to know of a lock that it holds.
type lockInfo struct {
	fence      int64
	ttl        time.Duration
	validUntil locker.Instant
}

// lockNews is one thing that is told of a lock.
type lockNews struct {
	validUntil locker.Instant
	lost       locker.Cause // empty if it is held
}

const (
	// longestWait is asked for in one request where the wait has no end, and is
	// the default of MAX_WAIT. Whoever waits longer takes a new place in line
	// then.
	longestWait = time.Hour

	// troublePatience is how long exec puts up with a sidecar or a store that
	// cannot be asked, at a time.
	troublePatience = time.Minute

	// askAgain is how often a lock is asked for that one cannot stand in line
	// for, and troublePause how soon after trouble at first.
	askAgain     = time.Second
	troublePause = 100 * time.Millisecond
)

// queueing is how exec waits for its lock.
type queueing struct {
	once  bool           // do not wait
	limit *time.Duration // nil for ever
}

// take takes the lock from the source, in as many requests as it takes.
func (q queueing) take(ctx context.Context, source lockSource) (heldLock, error) {
	if q.once {
		return source.take(ctx, 0)
	}
	began := time.Now()
	left := func() time.Duration {
		if q.limit == nil {
			return longestWait
		}
		return max(0, *q.limit-time.Since(began))
	}
	most := max(longestWait, left()) // that the sidecar allows, as far as is known
	var inTrouble time.Time          // since when; zero if it is not
	pause := troublePause
	for {
		asked := time.Now()
		// Rounded up: with what rounding down leaves of the wait one would ask
		// again, without a place in line.
		wait := (min(left(), most) + time.Millisecond - 1).Truncate(time.Millisecond)
		lock, err := source.take(ctx, wait)
		switch {
		case err == nil, ctx.Err() != nil:
			return lock, err
		case waitTooLong(err) && wait > 0:
			// MAX_WAIT is less. A sidecar that allows none is asked now and then.
			if most = wait / 2; most < askAgain {
				most = 0
			}
			continue
		case isTrouble(err):
			// What has kept us waiting, and not beyond the end of the wait, has
			// been well until now.
			took := time.Since(asked)
			stood := took > answerWithin && took < wait
			if inTrouble.IsZero() || stood {
				inTrouble, pause = time.Now(), troublePause
			}
			if time.Since(inTrouble) >= troublePatience {
				return nil, err
			}
		case exitCode(err) == exitNotAcquired:
			inTrouble, pause = time.Time{}, troublePause
		default:
			return nil, err
		}
		if q.limit != nil && left() == 0 {
			return nil, err
		}
		rest := pause
		if inTrouble.IsZero() {
			rest = askAgain - time.Since(asked)
		} else {
			pause = min(2*pause, 2*time.Second)
		}
		if err := sleep(ctx, min(rest-rand.N(max(rest/4, 1)), left())); err != nil {
			return nil, err
		}
	}
}

// sleep waits for a while, or for the end of ctx, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func waitTooLong(err error) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Code == "invalid_wait"
}

// isTrouble tells whether the error may be over in a moment: the sidecar or its
// store cannot say who is to have the lock. A stream that has told of no lock
// before it ended has told nothing.
func isTrouble(err error) bool {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		return refused.Status == http.StatusServiceUnavailable || refused.Status == http.StatusTooManyRequests
	}
	var unreachable *client.UnreachableError
	return errors.As(err, &unreachable) || errors.Is(err, client.ErrStreamEnded)
}
