package memory

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Value returns what is at the key, and how long it will stay: 0 for a value
// without TTL, and for a free key.
func (b *Backend) Value(key locker.Key) (value string, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	r := b.rows.get(key, now)
	if r.until != 0 {
		ttl = r.until.Sub(now)
	}
	return r.value, ttl
}

// Rows returns how many rows the table has, expired ones included.
func (b *Backend) Rows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows.rows)
}
