package redis

import (
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestAPingIsToldWhatARequestWouldBe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	permit(t, []*redistest.Server{server}, "single")
	b := open(t, server, Config{Username: value("locksidecar"), Password: value(password)})
	if err := b.Ping(t.Context()); err != nil {
		t.Fatalf("ping: %v", err)
	}
	setUser(server, "-evalsha", "-eval")
	wantStoreError(t, "ping without permission for scripts", b.Ping(t.Context()), locker.StoreAuthFailed, true)
	setUser(server, "+evalsha", "+eval")
	server.Do("SCRIPT", "FLUSH")
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("ping of a server that knows no script: %v", err)
	}
	if keys := server.Keys("*"); len(keys) != 0 {
		t.Errorf("pings have left %d keys", len(keys))
	}
}
