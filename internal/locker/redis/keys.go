package redis

import (
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// recordOutlives is how much longer a lock's grant record is kept than the
// lock: for that long a released claim is known to be spent, and the next
// fencing token rises from the last one rather than from the server's clock.
const recordOutlives = 5 * time.Minute

// layout names the keys of one prefix. Neither prefix nor key has a brace and
// no key begins with '#', so no two names collide, and all names of a lock
// hash to one slot.
type layout struct{ prefix string }

// lock is the string that holds the token.
func (l layout) lock(key locker.Key) string { return l.prefix + string(key) }

// record is the hash that describes the last grant.
func (l layout) record(key locker.Key) string { return l.companion() + l.lock(key) + "}" }

// companions are all names of a lock but its own; see scripts/line.lua for those
// of the line.
func (l layout) companions(key locker.Key) []string {
	tail := ":{" + l.lock(key) + "}"
	return []string{l.record(key), l.prefix + "#queue" + tail, l.prefix + "#place" + tail}
}

// companion is what precedes a lock's name in that of its record.
func (l layout) companion() string { return l.prefix + "#grant:{" }

// marker is the string by which a guarded server knows whether it has its data.
func (l layout) marker() string { return l.prefix + "#guard" }

// channel is where a process that waits is told of its places.
func (l layout) channel(process string) string { return l.prefix + "#wake:" + process }

// millis is d in whole milliseconds as Redis wants it, rounded up, and at
// least 1: Redis deletes a key whose time to live is set to 0.
func millis(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Millisecond-1)/time.Millisecond)), 10)
}

// millisOrNone is millis, or 0 where d says that nothing is to be kept.
func millisOrNone(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return millis(d)
}
