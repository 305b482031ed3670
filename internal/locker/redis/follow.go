package redis

import (
	"context"
	"slices"
)

// Follow calls changed whenever a server decides on locks that did not before: it
// may not know of some that are held. It returns when ctx is over or the Backend
// is closed, and at once where that cannot happen.
func (b *Backend) Follow(ctx context.Context, changed func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	known, change := b.servers.all()
	for change != nil {
		select {
		case <-ctx.Done():
			return
		case <-change:
		}
		var now []*node
		now, change = b.servers.all()
		if len(known) > 0 && slices.ContainsFunc(now, func(n *node) bool { return !slices.Contains(known, n) }) {
			changed()
		}
		if len(now) > 0 {
			known = now
		}
	}
}
