package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const password = "s3cr3t-of-the-test"

const user = "locksidecar"

// setUser changes what our user may do.
func setUser(server *redistest.Server, rules ...string) { server.SetUser(user, rules...) }

// permit makes our user on servers, with the permissions that are documented
// under these names.
func permit(t testing.TB, servers []*redistest.Server, names ...string) {
	t.Helper()
	for _, server := range servers {
		setUser(server, ">"+password)
		for _, name := range names {
			setUser(server, redistest.DocumentedACL(t, name)...)
		}
	}
}

// wantNothingDenied fails the test if our user has lacked a permission.
func wantNothingDenied(t testing.TB, servers []*redistest.Server) {
	t.Helper()
	for _, server := range servers {
		if denied := server.Denied(); len(denied) != 0 {
			t.Errorf("%q were denied", denied)
		}
	}
}

// cycle uses all of a Backend.
func cycle(t *testing.T, b *Backend) {
	t.Helper()
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	var held *locker.HeldError
	if _, err := b.Acquire(t.Context(), claimFor(testKey)); !errors.As(err, &held) {
		t.Errorf("acquire a held lock: %v", err)
	}
	if _, err := b.Inspect(t.Context(), testKey); err != nil {
		t.Errorf("inspect: %v", err)
	}
	if err := b.Annotate(t.Context(), c.Key, c.Token, "note"); err != nil {
		t.Errorf("annotate: %v", err)
	}
	if err := renewOne(t.Context(), b, c); err != nil {
		t.Errorf("renew: %v", err)
	}
	broken := claimFor(locker.Key("broken/" + rand.Text())) // which stays taken for a while
	mustAcquire(t, b, broken)
	if sighted, err := b.Sight(t.Context(), broken.Key); err != nil || sighted.Token != broken.Token {
		t.Errorf("sight: %v", err)
	}
	if _, err := b.Break(t.Context(), locker.Breach{Key: broken.Key, Token: broken.Token}); err != nil {
		t.Errorf("break: %v", err)
	}
	s := surrenderOf(c)
	s.Keep = time.Millisecond
	if v := b.Release(t.Context(), []locker.Surrender{s})[0]; v.Err != nil {
		t.Errorf("release: %v", v.Err)
	}
	eventually(t, "the tombstone ends", func() bool {
		_, err := b.Acquire(t.Context(), c)
		return errors.Is(err, locker.ErrSpent)
	})
	other := claimFor(testKey)
	mustAcquire(t, b, other)
	if err := releaseOne(t.Context(), b, other); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	waitAndLeave(t, b)
}

// waitAndLeave uses all that waiting needs. Whether it may is for others to see.
func waitAndLeave(t *testing.T, b *Backend) {
	t.Helper()
	const key = locker.Key("waited-for")
	holder := claimFor(key)
	_, _ = b.Acquire(t.Context(), holder)
	first := locker.Turn{Process: "first", Call: 1, WaitLeft: time.Minute}
	listening, stop := context.WithCancel(t.Context())
	defer stop()
	_ = hear(listening, only(b).connector(), b.keys.channel(first.Process), func() {
		waiter := claimFor(key)
		for range 2 {
			var held *locker.HeldError
			if _, err := b.AcquireInLine(t.Context(), waiter, first); errors.As(err, &held) {
				first.Number = held.Standing.Number
			}
		}
		_ = releaseOne(t.Context(), b, holder)
		_, _ = b.AcquireInLine(t.Context(), claimFor(key), locker.Turn{Process: "second", Call: 1, WaitLeft: time.Minute})
		_, _ = b.AcquireInLine(t.Context(), waiter, first)
		back := locker.Turn{Process: "back", Number: 7, Call: 1, WaitLeft: time.Minute} // its place was dropped
		_, _ = b.AcquireInLine(t.Context(), claimFor(key), back)
		_, _, _ = b.HandOver(t.Context(), surrenderOf(waiter), claimFor(key), locker.Turn{Process: "second", Number: 2, Call: 2})
		_ = b.Leave(t.Context(), key, locker.Turn{Process: "second", Call: 3})
		stop()
	}, func(string) {})
}

func TestTheDocumentedPermissionsSuffice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	permit(t, []*redistest.Server{server}, "single")
	b := open(t, server, Config{Username: value("locksidecar"), Password: value(password)})
	cycle(t, b)
	wantNothingDenied(t, []*redistest.Server{server})

	r, err := b.Report(t.Context())
	if want := (ServerInfo{Unix(server.Socket()).String(), Unknown, Unknown, Unknown, Unknown, Unknown, -1, -1, 0}); err != nil || len(r.Servers) != 1 || r.Servers[0] != want {
		t.Errorf("without permission to ask: %+v, %v, want %+v", r.Servers, err, want)
	}
	setUser(server, redistest.DocumentedACL(t, "checks")...)
	r, err = b.Report(t.Context())
	if err != nil || len(r.Servers) != 1 {
		t.Fatalf("with permission to ask: %+v, %v", r, err)
	}
	if s := r.Servers[0]; s.Role != "master" || s.MaxmemoryPolicy != "noeviction" || s.Persistence != "none" || s.Replicas != 0 ||
		len(s.RunID) != 40 || !atLeast(s.Version, 6, 2) {
		t.Errorf("with permission to ask: %+v", s)
	}
}

func TestEveryDocumentedPermissionIsNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	minimal := redistest.DocumentedACL(t, "single")
	for _, rule := range minimal {
		command, ok := strings.CutPrefix(rule, "+")
		if !ok {
			continue
		}
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		server.Do("ACL", "LOG", "RESET")
		setUser(server, append(append([]string{"reset", ">" + password}, minimal...), "-"+command)...)
		b := open(t, server, Config{Username: value("locksidecar"), Password: value(password)})
		c := claimFor(testKey)
		_, err := b.Acquire(t.Context(), c)
		_, _ = b.Acquire(t.Context(), claimFor(testKey))
		_ = renewOne(t.Context(), b, c)
		_ = releaseOne(t.Context(), b, c)
		waitAndLeave(t, b)
		if entries := server.Do("ACL", "LOG").([]any); len(entries) == 0 {
			t.Errorf("%s was never used", command)
		}
		if err != nil {
			wantStoreError(t, "acquire without "+command, err, locker.StoreAuthFailed, true)
		}
		b.Close()
	}
}

func TestAKeyOutsideTheUsersPatternsIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	permit(t, []*redistest.Server{server}, "single")
	b := open(t, server, Config{Username: value("locksidecar"), Password: value(password), KeyPrefix: "elsewhere:"})
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreAuthFailed, true)
}

func TestARotatedPasswordIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "password")
	rotate := func(to string) {
		if err := os.WriteFile(path, []byte(to+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		setUser(server, "resetpass", ">"+to)
		server.Do("CLIENT", "KILL", "USER", "locksidecar")
	}
	rotate("first")
	setUser(server, redistest.DocumentedACL(t, "single")...)
	b := open(t, server, Config{Username: value("locksidecar"), Password: file(path)})
	cycle(t, b)
	rotate("second")
	cycle(t, b)
}

func TestAPasswordThatIsReplacedWhileItIsRefusedIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Config{Password: password}.Start(t)
	var reads int
	var mu sync.Mutex
	secret := func() (string, error) { // the file changes between the attempt and its refusal
		mu.Lock()
		defer mu.Unlock()
		if reads++; reads == 1 {
			return "old", nil
		}
		return password, nil
	}
	b := open(t, server, Config{Password: secret})
	mustAcquire(t, b, claimFor(testKey))
}

func TestWrongCredentialsAreRefusedForCertainAndNotInsistedOn(t *testing.T) {
	t.Parallel()
	server := redistest.Config{Password: password}.Start(t)
	var log bytes.Buffer
	logged := &lockedWriter{w: &log}
	b := open(t, server, Config{Password: value("wrong-" + password), Log: slog.New(slog.NewTextHandler(logged, nil))})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				_, err := b.Acquire(t.Context(), claimFor(testKey))
				wantStoreError(t, "acquire", err, locker.StoreAuthFailed, true)
				if strings.Contains(err.Error(), password) {
					t.Error("the error has the password")
				}
			}
		})
	}
	wg.Wait()
	if refused := deniedLogins(t, server); refused == 0 || refused > 20 {
		t.Errorf("the server has refused %d logins for 1000 calls, want a few", refused)
	}
	b.Close()
	if text := log.String(); strings.Contains(text, password) || strings.Count(text, "\n") != 1 {
		t.Errorf("want one line of log without the password, got %d", strings.Count(text, "\n"))
	}
}

func TestARefusalIsForgottenAfterItsPause(t *testing.T) {
	t.Parallel()
	server := redistest.Config{Password: password}.Start(t)
	right := false
	var mu sync.Mutex
	b := open(t, server, Config{Password: func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if right {
			return password, nil
		}
		return "wrong", nil
	}})
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreAuthFailed, true)
	mu.Lock()
	right = true
	mu.Unlock()
	eventually(t, "the right password is tried", func() bool {
		_, err := b.Acquire(t.Context(), claimFor(testKey))
		return err == nil
	})
}

func TestAMissingPasswordAndAMissingFileAreCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Config{Password: password}.Start(t)
	for name, secret := range map[string]Secret{"no password": nil, "no file": file(filepath.Join(t.TempDir(), "absent"))} {
		b := open(t, server, Config{Password: secret})
		_, err := b.Acquire(t.Context(), claimFor(testKey))
		wantStoreError(t, name, err, locker.StoreAuthFailed, true)
	}
}

// deniedLogins returns how many logins the server has refused.
func deniedLogins(t *testing.T, server *redistest.Server) int {
	t.Helper()
	n, err := strconv.Atoi(infoFields(server.Do("INFO", "stats"))["acl_access_denied_auth"])
	if err == nil {
		return n
	}
	// Before Redis 7.0.? the log has the counts.
	total := 0
	for _, entry := range server.Do("ACL", "LOG").([]any) {
		fields := entry.([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "count" {
				total += int(fields[i+1].(int64))
			}
		}
	}
	return total
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}
