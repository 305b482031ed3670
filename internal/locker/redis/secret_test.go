package redis

import (
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestAnEmptyPasswordDoesNotMakeUsSomebodyElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // whose default user needs no password
	permit(t, []*redistest.Server{server}, "single")
	b := open(t, server, Config{Username: value("locksidecar"), Password: value("")})
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreAuthFailed, true)
	if keys := server.Keys("*"); len(keys) != 0 {
		t.Errorf("the refused grant has left %d keys", len(keys))
	}
}
