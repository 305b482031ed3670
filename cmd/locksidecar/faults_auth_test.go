package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// permissions are what the documentation asks for, with the default prefix.
var permissions = []any{"~lock:*", "&lock:*", "+eval", "+evalsha", "+time", "+get", "+set", "+del", "+pttl", "+pexpire", "+hset", "+hmget"}

// setUser makes the ACL user app exist with the rules added to what it has.
func setUser(r *redistest.Server, rules ...any) {
	r.Do(append([]any{"ACL", "SETUSER", "app", "on"}, rules...)...)
}

// secretFile writes a password to a file, and returns a function that
// replaces it as Kubernetes does: at once.
func secretFile(t *testing.T, password string) (path string, replace func(string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "password")
	replace = func(password string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(password)
	return path, replace
}

func TestARotatedPasswordIsTakenUpWithoutALoss(t *testing.T) {
	t.Parallel()
	const old, new = "the-first-password", "the-second-password"
	r := redistest.Start(t)
	setUser(r, append(permissions, ">"+old)...)
	path, replace := secretFile(t, old)
	p := on(t, r, "REDIS_USERNAME=app", "REDIS_PASSWORD_FILE="+path)
	p.secrets = append(p.secrets, old, new)
	h := p.POST("k", "ttl=3s").Finally(t, 201, "held")

	setUser(r, ">"+new)
	replace(new)
	setUser(r, "<"+old)
	r.Do("CLIENT", "KILL", "USER", "app")
	for i := range 20 {
		p.POST(fmt.Sprint("other", i), "ttl=30s").Finally(t, 201, "held")
		p.DELETE(fmt.Sprint("other", i)).Finally(t, 204, "")
	}
	p.awaitRenewals("k", 3, 15*time.Second)
	if a := p.GET("k"); a.JSON.Fence != h.JSON.Fence {
		t.Errorf("the lock is grant %d, was %d", a.JSON.Fence, h.JSON.Fence)
	}
	if strings.Contains(p.Log(), "auth_failed") {
		t.Error("the rotation was noticed")
	}
}

func TestRefusedCredentialsAreToldAndNotInsistedOn(t *testing.T) {
	t.Parallel()
	const right, wrong = "the-right-password", "the-wrong-password"
	for name, refuse := range map[string]func(r *redistest.Server, replace func(string)){
		"WRONGPASS": func(r *redistest.Server, replace func(string)) { replace(wrong) },
		"empty":     func(r *redistest.Server, replace func(string)) { replace("") },
		"user off":  func(r *redistest.Server, _ func(string)) { r.Do("ACL", "SETUSER", "app", "off") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			setUser(r, append(permissions, ">"+right)...)
			path, replace := secretFile(t, right)
			p := on(t, r, "REDIS_USERNAME=app", "REDIS_PASSWORD_FILE="+path)
			p.secrets = append(p.secrets, right, wrong)
			p.POST("k", "ttl=15s").Finally(t, 201, "held")

			refuse(r, replace)
			// Also connections that were being opened meanwhile.
			killed := func() bool { return r.Do("CLIENT", "KILL", "USER", "app") != int64(0) }
			eventually(t, 10*time.Second, "the sidecar is refused", func() bool {
				return !killed() && p.POST("first", "ttl=1s").Is(503, "store_auth_failed") && !killed()
			})
			before := connectionsOf(t, r)
			var asking sync.WaitGroup
			for range 20 {
				asking.Go(func() {
					for i := range 30 {
						a := p.POST(fmt.Sprint("other", i), "ttl=1s")
						if !a.Is(503, "store_auth_failed") {
							t.Errorf("the answer is %v", a)
						}
					}
				})
			}
			asking.Wait()
			if status, text := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "auth_failed") {
				t.Errorf("readiness is %d %q", status, text)
			}
			// The pause doubles from 250 ms, and each time is one attempt; every
			// look at the server is a connection of ours.
			const ours = 1
			if n := connectionsOf(t, r) - before - ours; n > 10 {
				t.Errorf("%d connections were tried", n)
			}
			p.awaitState("k", 15*time.Second, 200, "at_risk")

			replace(right)
			setUser(r)
			eventually(t, 30*time.Second, "the sidecar is let in again", func() bool {
				return p.POST("after", "ttl=1s").Status == http.StatusCreated
			})
		})
	}
}

// connectionsOf returns how many connections the server has accepted, but for
// the one that asks.
func connectionsOf(t *testing.T, r *redistest.Server) (n int) {
	t.Helper()
	info, _ := r.Do("INFO", "stats").(string)
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "total_connections_received:%d", &n); err == nil {
			return n
		}
	}
	t.Fatal("the server does not tell its connections")
	return 0
}

func TestAPasswordThatIsDemandedAndNotGivenIsToldAndNeedsNoRestart(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	p.POST("k", "ttl=9s").Finally(t, 201, "held")
	operator := r.Dial()
	for _, command := range [][]any{{"CONFIG", "SET", "requirepass", "of-the-operator"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}} {
		if _, err := operator.Do(command...); err != nil {
			t.Fatal(err)
		}
	}
	p.POST("other").Want(t, 503, "store_auth_failed") // NOAUTH
	p.awaitState("k", 9*time.Second, 200, "at_risk")
	if status, _ := p.Ready(); status != http.StatusServiceUnavailable {
		t.Errorf("readiness is %d", status)
	}
	if _, err := operator.Do("CONFIG", "SET", "requirepass", ""); err != nil {
		t.Fatal(err)
	}
	p.awaitState("k", 9*time.Second, 200, "held")
	p.DELETE("k").Finally(t, 204, "")
}

func TestWithoutPermissionForScriptsNothingIsGranted(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	setUser(r, append(permissions, ">pw-of-the-app")...)
	p := on(t, r, "REDIS_USERNAME=app", "REDIS_PASSWORD=pw-of-the-app")
	p.POST("k", "ttl=6s").Finally(t, 201, "held")

	setUser(r, "-eval", "-evalsha")
	p.POST("other").Want(t, 503, "store_auth_failed")
	if r.Do("EXISTS", "lock:other") != int64(0) {
		t.Error("a refused lock is in Redis")
	}
	p.awaitState("k", 6*time.Second, 200, "at_risk")
	if status, text := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "auth_failed") {
		t.Errorf("readiness is %d %q", status, text)
	}
	setUser(r, "+eval", "+evalsha")
	p.awaitState("k", 6*time.Second, 200, "held")
	p.DELETE("k").Finally(t, 204, "")
}

func TestTheLeastPermissionsSufficeAndWhatIsOffIsTold(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "maxmemory-policy allkeys-lru")
	setUser(r, append(permissions, ">pw-of-the-app")...) // neither INFO, CONFIG nor PUBLISH
	p := on(t, r, "REDIS_USERNAME=app", "REDIS_PASSWORD=pw-of-the-app")
	p.AwaitLog("Redis does not let us run INFO: eviction, persistence, replicas, version and role are not checked")
	p.AwaitLog("Redis does not let us run CONFIG GET: ")
	p.POST("k", "ttl=3s", "note=n").Finally(t, 201, "held")
	p.awaitRenewals("k", 2, 15*time.Second)
	p.PATCH("k", "note=m").Finally(t, 200, "held")
	p.DELETE("k").Finally(t, 204, "")
	p.POST("cron", "ttl=1s", "min_hold=1s").Finally(t, 201, "held")
	p.DELETE("cron").Finally(t, 204, "")
	if status, text := p.Ready(); status != http.StatusOK || strings.Count(text, "warning:") != 1 || !strings.Contains(text, "run INFO") {
		t.Errorf("readiness is %d %q", status, text)
	}
	if p.Metric(`locksidecar_warnings{check="permissions"}`) != 1 || p.Metric(`locksidecar_warnings{check="eviction"}`) != 0 {
		t.Error("the metrics tell of another check, or of none")
	}
}
