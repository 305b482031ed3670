package locker

import "time"

// GrantID numbers the grants of this process. Every grant is a generation of
// its own: nothing that belongs to one ID ever touches another.
type GrantID uint64

// Request asks the Locker for a lock.
type Request struct {
	Key     Key
	Owner   string        // names one worker; empty for none
	TTL     time.Duration // the lease
	Wait    time.Duration // how long to wait if it is held; 0 tries once
	Renew   bool          // the watchdog extends it; else it only verifies
	MaxHold time.Duration // no lease outlives the grant by more; 0 for no bound
	MinHold time.Duration // the key stays taken at least this long after the grant
	Note    string

	// Bound says that the lock ends with the connection over which it is asked
	// for: a success is followed by Unbind. A lock that the same owner binds
	// again ends with the last of its connections. It is always renewed.
	Bound bool

	// Given names the parameters that the caller gave. They must equal the
	// grant's if the owner holds the lock already; the others are defaults
	// then and are not compared.
	Given []Parameter
}

// Parameter names a parameter of a request, as the API spells it.
type Parameter string

const (
	ParamTTL     Parameter = "ttl"
	ParamWait    Parameter = "wait"
	ParamOwner   Parameter = "owner"
	ParamBind    Parameter = "bind"
	ParamRenew   Parameter = "renew"
	ParamMaxHold Parameter = "max_hold"
	ParamMinHold Parameter = "min_hold"
	ParamNote    Parameter = "note"
)

// Handle narrows an operation to one grant. The zero Handle means whatever
// this sidecar holds.
type Handle struct {
	Fence Fence  // 0 for any
	Owner string // empty for any
}

// Changes is what Extend changes; nil fields stay.
type Changes struct {
	TTL     *time.Duration
	MaxHold *time.Duration
	Note    *string
}

// ReleaseOptions vary a release.
type ReleaseOptions struct {
	Force       bool // whatever the owner
	SkipMinHold bool // free at once, though the minimum hold is not over
}

// HeldState is what can be said of a lease that is valid.
type HeldState string

const (
	StateHeld   HeldState = "held"
	StateAtRisk HeldState = "at_risk" // valid, but a renewal is overdue
)

// Status describes a grant that was valid when the Status was made.
type Status struct {
	ID         GrantID
	Key        Key
	Owner      string
	Note       string
	Fence      Fence
	State      HeldState
	AcquiredAt time.Time     // wall clock, for people
	TTL        time.Duration // as asked for, or as last extended
	ValidFor   time.Duration // above 0
	ValidUntil Instant
	HeldFor    time.Duration
	Renewals   int
	Renew      bool
	Bound      bool // ends with a connection
	MaxHold    time.Duration
	MinHold    time.Duration

	// AckedReplicas is how many replicas of the store had the grant when it was
	// told; 0 where that is not waited for.
	AckedReplicas int
}

// EntryState is what an Entry of a listing can be.
type EntryState string

const (
	EntryHeld      EntryState = "held"
	EntryAtRisk    EntryState = "at_risk"
	EntryAsking    EntryState = "asking"    // a request is on its way to the store
	EntryWaiting   EntryState = "waiting"   // in line
	EntryReleasing EntryState = "releasing" // given back, not yet confirmed
	EntryLost      EntryState = "lost"
)

// Entry is one row of List.
type Entry struct {
	State  EntryState
	Key    Key
	Owner  string
	Note   string
	At     time.Time     // when the state began, wall clock
	For    time.Duration // how long ago that was
	Status *Status       // for held and at_risk
	InLine *InLine       // for waiting
	Lost   *LostError    // for lost
}

// InLine is where a caller that waits stands. What only the store knows is as
// it was when this sidecar asked last; nil if that has not been answered.
type InLine struct {
	Place     int           // 1 is the first of those that wait here
	Left      time.Duration // how much longer it waits at most
	Ahead     *int          // places of other sidecars before this sidecar's
	Occupancy *Occupancy    // who has the key
}

// Stats counts what the table holds at one moment.
type Stats struct {
	Held, AtRisk, Waiting int
	OldestHeldFor         time.Duration
}

// ReleaseMode says what a shutdown does with locks that are still held.
type ReleaseMode string

const (
	// ModeDrop waits for locks to be cleared, then drops all.
	ModeDrop ReleaseMode = "drop"
	// ModeGuarded drops what has been cleared; the rest ends by its TTL.
	ModeGuarded ReleaseMode = "guarded"
	// ModeRelease waits for the application to release; the rest ends by its TTL.
	ModeRelease ReleaseMode = "release"
)

// Counts is what became of the locks at a shutdown.
type Counts struct {
	Dropped     int // given back by the shutdown
	Released    int // given back by the application meanwhile
	Unconfirmed int // given back without an answer
	Left        int // left to end by their TTL
}
