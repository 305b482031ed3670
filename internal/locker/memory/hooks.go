package memory

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// What an operator can do to a Redis behind everybody's back, for tests.

// Value returns what is at the key, as GET and PTTL do: a ttl of 0 means that
// it has none. ok is false for a free key.
func (b *Backend) Value(key locker.Key) (value string, ttl time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	r := b.rows.get(key, now)
	if r.until != 0 {
		ttl = r.until.Sub(now)
	}
	return r.value, ttl, r.taken()
}

// Wipe loses all data, as FLUSHALL does, the memory of grants and the lines
// included.
func (b *Backend) Wipe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows, b.lines = table{}, lines{}
}

// Delete frees the key, as DEL on the lock's own key does: the last grant is
// still remembered.
func (b *Backend) Delete(key locker.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rows.get(key, b.now())
	r.free()
	b.rows.set(key, r)
}

// Put writes a value, not empty, over whatever is at the key, as SET does. A
// ttl of 0 sets none: the value is not a lock then, and claims end in
// [locker.ErrKeyConflict].
func (b *Backend) Put(key locker.Key, value string, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	r := b.rows.get(key, now)
	r.value, r.until = value, 0
	if ttl > 0 {
		r.hold(value, now, ttl)
	}
	b.rows.set(key, r)
}

// LineTTL returns how long something of the key's line is kept from now on if
// nobody asks for the key again: 0 if nothing is.
func (b *Backend) LineTTL(key locker.Key) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	return max(0, b.lines.get(key, now).forgetAt.Sub(now))
}
