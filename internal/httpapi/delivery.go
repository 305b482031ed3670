package httpapi

import (
	"fmt"
	"net/http"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Whether an answer has arrived
//
// A grant is worth something only to a caller who hears of it; else it would
// be renewed for ever with nobody to release it. What can be known:
//
//   - Before the first byte of the answer: the caller has gone if its side of
//     the connection has ended. Closing only the sending side counts as well,
//     since the two look alike from here.
//   - While it is written: an error, or a caller that does not take it in time.
//   - Afterwards, from how the connection goes on. The next request proves
//     that the answer was read. A reset tells that it was not: a kernel resets
//     the connection if a process leaves with input unread. An orderly end with
//     everything acknowledged is what a curl that has read its answer and exits
//     looks like. Where the end comes from our side, it waits a moment for the
//     caller's.
//
// The first two are decided by deliver, the rest by the conn when it closes.

// deliver writes the answer that tells of the grant, and sees to it that
// exactly one of GiveBack and Cleared follows, now or when the connection
// ends.
func (a *api) deliver(w http.ResponseWriter, r *http.Request, st locker.Status, answer func() error) error {
	told := false
	defer func() { // also if answer panics
		if !told {
			a.Locks.GiveBack(st.ID)
		}
	}()
	c := connOf(r)
	if c != nil {
		c.guard(true)
		defer c.guard(false)
	}
	if r.Context().Err() != nil {
		return locker.ErrCallerGone
	}
	if a.Now() >= st.ValidUntil { // this process was stopped since it was granted
		return fmt.Errorf("%w: it was over before it could be told", locker.ErrAcquireUnresolved)
	}
	err := answer()
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		a.Log.Debug("an answer that granted a lock was not delivered", "key", string(st.Key), "fence", int64(st.Fence), "err", err)
		return locker.ErrCallerGone // net/http writes nothing after an error of writing
	}
	told = true
	if c == nil {
		a.Locks.Cleared(st.ID)
		return nil
	}
	c.told(telling{id: st.ID})
	if a.Journaled {
		c.confirm(st.ID)
	}
	return nil
}
