package httpapi

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// granted is the answer that tells of a lock.
type granted struct {
	Key                  locker.Key       `json:"key"`
	State                locker.HeldState `json:"state"`
	Owner                string           `json:"owner"`
	Note                 string           `json:"note"`
	FencingToken         locker.Fence     `json:"fencing_token"`
	AcquiredAt           string           `json:"acquired_at"`
	TTLMS                int64            `json:"ttl_ms"`
	ValidForMS           int64            `json:"valid_for_ms"` // rounded down
	ValidUntilBoottimeMS int64            `json:"valid_until_boottime_ms"`
	Renew                bool             `json:"renew"`
	Bind                 string           `json:"bind"`
	MaxHoldMS            int64            `json:"max_hold_ms"` // 0 for none
	MinHoldMS            int64            `json:"min_hold_ms"`
	AckedReplicas        int              `json:"acked_replicas,omitempty"` // where they are waited for
}

func describeGrant(st locker.Status) granted {
	return granted{
		Key: st.Key, State: st.State, Owner: st.Owner, Note: st.Note,
		FencingToken: st.Fence, AcquiredAt: timestamp(st.AcquiredAt),
		TTLMS: st.TTL.Milliseconds(), ValidForMS: st.ValidFor.Milliseconds(),
		ValidUntilBoottimeMS: st.ValidUntil.Milliseconds(),
		Renew:                st.Renew, Bind: bindOf(st),
		MaxHoldMS: st.MaxHold.Milliseconds(), MinHoldMS: st.MinHold.Milliseconds(),
		AckedReplicas: st.AckedReplicas,
	}
}

func bindOf(st locker.Status) string {
	if st.Bound {
		return bindConnection
	}
	return bindNone
}

// holding is the answer that tells how a lock is doing.
type holding struct {
	granted
	HeldForMS int64 `json:"held_for_ms"`
	Renewals  int   `json:"renewals"`
}

func describeHolding(st locker.Status) holding {
	return holding{describeGrant(st), st.HeldFor.Milliseconds(), st.Renewals}
}

// occupancy says who has a key, as far as that is known.
type occupancy struct {
	State       locker.OccupancyState `json:"state"`
	Holder      *holder               `json:"holder"`
	ExpiresInMS *int64                `json:"expires_in_ms"`
	QueueLength *int                  `json:"queue_length"`
}

type holder struct {
	Pod   string  `json:"pod"`
	Since *string `json:"since"`
	Note  string  `json:"note"`
}

func describeOccupancy(o locker.Occupancy) *occupancy {
	described := &occupancy{State: o.State}
	if o.State == "" || o.State == locker.OccupancyUnknown {
		described.State = locker.OccupancyUnknown
		return described
	}
	if o.Holder != nil {
		described.Holder = &holder{Pod: o.Holder.Pod, Note: o.Holder.Note}
		if !o.Holder.Since.IsZero() {
			since := timestamp(o.Holder.Since)
			described.Holder.Since = &since
		}
	}
	expires := o.ExpiresIn.Milliseconds()
	described.ExpiresInMS, described.QueueLength = &expires, &o.QueueLength
	return described
}

// entry is one row of the list: a held lock with all that GET tells of it, or
// a request, a release or a loss.
type entry struct {
	State locker.EntryState `json:"state"`
	Key   locker.Key        `json:"key"`
	Owner string            `json:"owner"`
	Note  string            `json:"note"`
	At    string            `json:"at"` // when the state began
	Held  *holding          `json:"held,omitempty"`
	Lost  *loss             `json:"lost,omitempty"`
}

type loss struct {
	FencingToken locker.Fence `json:"fencing_token"`
	Cause        locker.Cause `json:"cause"`
	LostAt       string       `json:"lost_at"`
}

func describeEntry(e locker.Entry) entry {
	described := entry{State: e.State, Key: e.Key, Owner: e.Owner, Note: e.Note, At: timestamp(e.At)}
	if e.Status != nil {
		h := describeHolding(*e.Status)
		described.Held = &h
	}
	if e.Lost != nil {
		described.Lost = &loss{e.Lost.Fence, e.Lost.Cause, timestamp(e.Lost.LostAt)}
	}
	return described
}

// timestamp writes a wall-clock time for people: RFC 3339 in UTC.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
