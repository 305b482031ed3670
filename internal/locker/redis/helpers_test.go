package redis

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const (
	testPrefix = "lock:"
	testKey    = locker.Key("k")
	pod        = "test/pod-0"
)

// open returns a backend on the server, over its socket unless the config has
// an address.
func open(t testing.TB, server *redistest.Server, config Config) *Backend {
	t.Helper()
	if config.Addrs == nil {
		config.Addrs = []Address{Unix(server.Socket())}
	}
	if config.KeyPrefix == "" {
		config.KeyPrefix = testPrefix
	}
	if config.StoreTimeout == 0 {
		config.StoreTimeout = 5 * time.Second // busy machines are not what is tested
	}
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	b, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// value is a Secret that stays as it is.
func value(s string) Secret { return func() (string, error) { return s, nil } }

// file is a Secret that stands in a file.
func file(path string) Secret {
	return func() (string, error) {
		content, err := os.ReadFile(path)
		return strings.TrimSpace(string(content)), err
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// only returns the one server of a backend.
func only(b *Backend) *node {
	nodes, _ := b.servers.all()
	return nodes[0]
}

func claimFor(key locker.Key) locker.Claim {
	return locker.Claim{
		Key: key, Token: locker.NewToken(pod), Holder: pod,
		Keep: time.Minute, NotAfter: soon(),
	}
}

func soon() locker.Instant { return locker.BootTime().Add(10 * time.Second) }

func renewalOf(c locker.Claim) locker.Renewal {
	return locker.Renewal{Key: c.Key, Token: c.Token, Keep: c.Keep, NotAfter: soon()}
}

func surrenderOf(c locker.Claim) locker.Surrender {
	return locker.Surrender{Key: c.Key, Token: c.Token, Holder: c.Holder}
}

func mustAcquire(t testing.TB, b *Backend, c locker.Claim) locker.Grant {
	t.Helper()
	grant, err := b.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return grant
}

func renewOne(ctx context.Context, b *Backend, c locker.Claim) error {
	return b.Renew(ctx, []locker.Renewal{renewalOf(c)})[0].Err
}

func releaseOne(ctx context.Context, b *Backend, c locker.Claim) error {
	return b.Release(ctx, []locker.Surrender{surrenderOf(c)})[0].Err
}

func wantStoreError(t testing.TB, what string, err error, reason locker.StoreReason, certain bool) {
	t.Helper()
	var failure *locker.StoreError
	if !errors.As(err, &failure) {
		t.Errorf("%s: %v, want a store error", what, err)
		return
	}
	if failure.Reason != reason || failure.Certain != certain {
		t.Errorf("%s: %v (certain: %v), want %s (certain: %v)", what, err, failure.Certain, reason, certain)
	}
}

// eventually polls for something that another process does. It is generous: what
// servers agree on among themselves may take several attempts on a busy machine.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
