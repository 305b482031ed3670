package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestAStrictSidecarDoesNotBeginOnAnUnsafeStore(t *testing.T) {
	t.Parallel()
	safe := redistest.Start(t, "appendonly yes")
	for name, c := range map[string]struct {
		directives []string
		prepare    func(*redistest.Server)
		want       string
	}{
		"no persistence":  {nil, nil, "nothing is persisted"},
		"snapshots alone": {[]string{"save 3600 1"}, nil, "only snapshots"},
		"eviction":        {[]string{"appendonly yes", "maxmemory-policy allkeys-lfu"}, nil, "allkeys-lfu"},
		"no INFO": {[]string{"appendonly yes"}, func(r *redistest.Server) {
			r.Do("ACL", "SETUSER", "default", "-info")
		}, "does not let us run INFO"},
	} {
		t.Run(name, func(t *testing.T) {
			r := redistest.Start(t, c.directives...)
			if c.prepare != nil {
				c.prepare(r)
			}
			code, output := launch{Env: []string{"REDIS_ADDRS=" + r.Addr(), "STRICT=true"}}.fail(t)
			if code != exitFailure || !strings.Contains(output, "STRICT: the store is not safe for locks") || !strings.Contains(output, c.want) {
				t.Errorf("exit code %d, want %d and %q; it says:\n%s", code, exitFailure, c.want, output)
			}
			if strings.Contains(output, "listening") {
				t.Error("it has opened its doors")
			}
		})
	}
	p := startSidecar(t, "REDIS_ADDRS="+safe.Addr(), "STRICT=true")
	p.POST("k").Finally(t, 201, "held")
	// Later on it only warns: what is held must not be lost by it.
	safe.Do("CONFIG", "SET", "appendonly", "no")
	p.GET("k").Want(t, 200, "held")
}

func TestAStrictSidecarWaitsForItsStore(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "appendonly yes")
	r.Kill()
	env := []string{"REDIS_ADDRS=" + r.Addr(), "STRICT=true"}
	told := launch{Env: env}.start(t)
	told.AwaitLog("STRICT: no door opens")
	told.Signal(syscall.SIGTERM)
	if code := told.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d at SIGTERM, want 0", code)
	}
	p := launch{Env: env}.start(t)
	p.AwaitLog("STRICT: no door opens")
	if strings.Contains(p.Log(), "listening") {
		t.Error("it has opened its doors")
	}
	r.Restart()
	p.findDoors()
	p.POST("k").Finally(t, 201, "held")
}

func TestACommandThatIsStrictDoesNotRunOnAnUnsafeStore(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	code, output := launch{
		Args: []string{"exec", "--direct", "k", "--", "true"}, Env: []string{"REDIS_ADDRS=" + r.Addr(), "STRICT=true"},
	}.fail(t)
	if code != exitUnavailable || !strings.Contains(output, "nothing is persisted") {
		t.Errorf("exit code %d, want %d; it says:\n%s", code, exitUnavailable, output)
	}
}
