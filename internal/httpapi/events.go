package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// change is the event that tells for how long a lock is valid now.
type change struct {
	Key                  locker.Key       `json:"key"`
	State                locker.HeldState `json:"state"`
	FencingToken         locker.Fence     `json:"fencing_token"`
	ValidForMS           int64            `json:"valid_for_ms"`
	ValidUntilBoottimeMS int64            `json:"valid_until_boottime_ms"`
	Renewals             int              `json:"renewals"`
}

// ending is the last event. It tells how long nobody else can have the lock.
type ending struct {
	Key                  locker.Key   `json:"key"`
	FencingToken         locker.Fence `json:"fencing_token"`
	Cause                locker.Cause `json:"cause,omitempty"` // of a loss
	LostAt               string       `json:"lost_at,omitempty"`
	ValidForMS           int64        `json:"valid_for_ms"`
	ValidUntilBoottimeMS int64        `json:"valid_until_boottime_ms"`
}

func describeEvent(e locker.Event) any {
	st := e.Status
	switch e.Kind {
	case locker.EventHeld, locker.EventAtRisk:
		return describeHolding(st)
	case locker.EventLost, locker.EventReleased:
		end := ending{
			Key: st.Key, FencingToken: st.Fence,
			ValidForMS: st.ValidFor.Milliseconds(), ValidUntilBoottimeMS: st.ValidUntil.Milliseconds(),
		}
		if e.Lost != nil {
			end.Cause, end.LostAt = e.Lost.Cause, timestamp(e.Lost.LostAt)
		}
		return end
	}
	return change{
		Key: st.Key, State: st.State, FencingToken: st.Fence, Renewals: st.Renewals,
		ValidForMS: st.ValidFor.Milliseconds(), ValidUntilBoottimeMS: st.ValidUntil.Milliseconds(),
	}
}

// isLast tells whether nothing follows the event.
func isLast(e locker.Event) bool {
	return e.Kind == locker.EventLost || e.Kind == locker.EventReleased
}

// encodeEvent writes down one server-sent event: JSON has no line breaks of its
// own.
func encodeEvent(e locker.Event) (string, error) {
	data, err := json.Marshal(describeEvent(e))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", e.Kind, data), nil
}

// comment is what clients and proxies get that would take a long silence for
// the end.
const comment = ": still here\n\n"
