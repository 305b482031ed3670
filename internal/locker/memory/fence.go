package memory

import (
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// maxLead is by how much a fencing token may be above the floor before it is
// taken for the fruit of a broken clock or counter: a year of microseconds.
const maxLead = locker.Fence(365 * 24 * time.Hour / time.Microsecond)

var errImplausible = errors.New("the next fencing token would be implausibly great")

// nextFence returns a fencing token above last, no less than floor and no less
// than the wall clock's microseconds; or the certain refusal of an implausible
// one.
func nextFence(last locker.Fence, wall time.Time, floor locker.Fence) (locker.Fence, error) {
	fence := max(last+1, locker.Fence(wall.UnixMicro()), floor)
	if fence > locker.MaxFence || floor > 0 && fence-floor > maxLead {
		return 0, &locker.StoreError{Reason: locker.StoreFailed, Certain: true, Err: errImplausible}
	}
	return fence, nil
}
