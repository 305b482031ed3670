package lockertest

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Chaos returns a plan that gives a share of all calls, from 0 to 1, one fault
// of any kind, with delays up to longest. Equal seeds make equal plans; a test
// that uses one prints its seed.
func Chaos(seed uint64, share float64, longest time.Duration) Plan {
	random := rand.New(rand.NewPCG(seed, 0))
	delay := func() time.Duration { return 1 + time.Duration(random.Int64N(int64(longest))) }
	kinds := []func() Fault{
		func() Fault { return Fault{Refuse: errUnreached} },
		func() Fault { return Fault{Refuse: errReplyLost} },
		func() Fault { return Fault{LoseReply: true} },
		func() Fault { return Fault{LoseReply: true, RequestDelay: delay()} },
		func() Fault { return Fault{RequestDelay: delay()} },
		func() Fault { return Fault{ReplyDelay: delay()} },
		func() Fault { return Fault{Duplicates: 1 + random.IntN(2), DuplicateDelay: delay()} },
	}
	return func(Call) Fault {
		if random.Float64() >= share {
			return Fault{}
		}
		return kinds[random.IntN(len(kinds))]()
	}
}

// errUnreached is a certain failure.
var errUnreached = &locker.StoreError{
	Reason: locker.StoreUnavailable, Certain: true, Err: errors.New("injected: the store was not reached"),
}
