package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Warning is something about the servers that endangers locks.
type Warning struct {
	Check   string // one of CheckNames
	Message string // for people; it holds nothing that a server has said in its own words

	// Unsafe tells that locks may be lost by it, in the ordinary course of
	// things or by a single fault, so that who is strict does not begin.
	Unsafe bool
}

// The checks.
const (
	CheckEviction    = "eviction"
	CheckPersistence = "persistence"
	CheckReplicas    = "replicas"     // there are some, and nobody waits for them
	CheckMinReplicas = "min_replicas" // a master that is cut off goes on behind Sentinels
	CheckVersion     = "version"
	CheckRole        = "role"
	CheckClockStep   = "clock_step" // within the last hour
	CheckPermissions = "permissions"
)

// CheckNames lists the checks.
var CheckNames = []string{
	CheckEviction, CheckPersistence, CheckReplicas, CheckMinReplicas, CheckVersion, CheckRole, CheckClockStep, CheckPermissions,
}

// stepTold is for how long a jump of a server's clock is told.
const stepTold = time.Hour

// warnings returns what endangers locks, one for each check, in the order of
// CheckNames. What a server does not tell is not warned of, save that it does
// not.
func (b *Backend) warnings(servers []ServerInfo) []Warning {
	byCheck := make(map[string][]Warning)
	where := make(map[Warning][]string) // at which servers
	for _, s := range servers {
		for _, w := range s.warnings(b.kind, b.minReplicas, b.guard != "") {
			if where[w] == nil {
				byCheck[w.Check] = append(byCheck[w.Check], w)
			}
			where[w] = append(where[w], s.Addr)
		}
	}
	for _, of := range byCheck {
		for i, w := range of {
			if at := where[w]; len(at) < len(servers) {
				of[i].Message = "at " + strings.Join(at, ", ") + ": " + w.Message
			}
		}
	}
	if w, ok := b.lacks.warning(); ok {
		byCheck[w.Check] = append(byCheck[w.Check], w)
	}
	var all []Warning
	for _, check := range CheckNames {
		if of := byCheck[check]; len(of) > 0 {
			all = append(all, merged(of))
		}
	}
	return all
}

// merged makes one warning of several of the same check.
func merged(of []Warning) Warning {
	w := of[0]
	for _, other := range of[1:] {
		w.Message += "; " + other.Message
		w.Unsafe = w.Unsafe || other.Unsafe
	}
	return w
}

// warnings returns what is wrong with one server. What a guarded one loses while
// it is held is not granted to others meanwhile.
func (s ServerInfo) warnings(kind Kind, acknowledged int, guarded bool) []Warning {
	var all []Warning
	warn := func(check string, unsafe bool, format string, args ...any) {
		all = append(all, Warning{check, fmt.Sprintf(format, args...), unsafe})
	}
	if s.MaxmemoryPolicy != Unknown && s.MaxmemoryPolicy != "noeviction" {
		warn(CheckEviction, true, "maxmemory-policy is %s: when memory is short Redis deletes locks that are held; use noeviction", s.MaxmemoryPolicy)
	}
	switch {
	case guarded:
	case s.Persistence == "none":
		warn(CheckPersistence, true, "nothing is persisted: after a restart of Redis locks that are still held can be taken by others; set appendonly yes")
	case s.Persistence == "rdb":
		warn(CheckPersistence, true, "only snapshots are persisted: after a restart of Redis locks that were taken since the latest one can be taken by others; set appendonly yes")
	}
	if s.Replicas > 0 && acknowledged == 0 {
		warn(CheckReplicas, !guarded, "there are replicas and no grant waits for them: when one of them becomes the master, locks that it has not are lost while they are held; set REDIS_MIN_REPLICAS, to %d to be sure", s.Replicas)
	}
	if kind == Sentinel && s.MinReplicas == 0 {
		warn(CheckMinReplicas, acknowledged == 0, "min-replicas-to-write is 0: a master that is cut off from its replicas goes on taking writes while Sentinels make another one; set it to 1, or to the number of replicas to be sure")
	}
	if s.Version != Unknown && !atLeast(s.Version, 6, 2) {
		warn(CheckVersion, true, "Redis %s is older than 6.2, the oldest that is supported", s.Version)
	}
	if s.Role != Unknown && s.Role != "master" {
		warn(CheckRole, true, "the server is a %s, and only a master can grant locks", s.Role)
	}
	if s.ClockStep != 0 {
		warn(CheckClockStep, false, "the server's clock has jumped by %v within the last hour: it counts TTLs by that clock; let it be slewed, not stepped", s.ClockStep.Round(time.Millisecond))
	}
	return all
}

// atLeast compares a version such as 7.0.15; what cannot be read is new enough.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	gotMajor, err := strconv.Atoi(parts[0])
	if err != nil {
		return true
	}
	gotMinor, err := strconv.Atoi(parts[1])
	if err != nil {
		return true
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}
