package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// stuck is a writer that nobody reads from until open is closed.
type stuck struct {
	open chan struct{}
	text bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.open
	return s.text.Write(p)
}

func TestWhoeverLogsWaitsForNobodyWhoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{open: make(chan struct{})}
		log, queue := NewLogger(out, LogText, slog.LevelInfo)
		const lines = 1000
		for i := range lines {
			log.Error("lock lost", "i", i, "padding", strings.Repeat("x", 4096))
		}
		before := time.Now()
		queue.flush(time.Second)
		if waited := time.Since(before); waited != time.Second {
			t.Errorf("the end of the process waited %v for a log that nobody reads", waited)
		}
		close(out.open)
		queue.flush(time.Second)

		written := strings.Split(strings.TrimSuffix(out.text.String(), "\n"), "\n")
		kept := len(written) - 1
		if size := out.text.Len(); size < logQueueSize*9/10 || size > logQueueSize*11/10 {
			t.Errorf("%d bytes were kept, of %d", size, logQueueSize)
		}
		for i, line := range written[:kept] {
			if want := " i=" + strconv.Itoa(i) + " "; !strings.Contains(line, want) {
				t.Fatalf("line %d has no %q: %.80s", i, want, line)
			}
		}
		if last, want := written[kept], "lines="+strconv.Itoa(lines-kept); !strings.Contains(last, "left out") || !strings.HasSuffix(last, want) {
			t.Errorf("the last line is %.120q, want one that ends with %q", last, want)
		}

		log.Info("read again")
		queue.flush(time.Second)
		if !strings.HasSuffix(out.text.String(), `msg="read again"`+"\n") {
			t.Error("nothing is written any more")
		}
	})
}

// fullPipe returns the path of a pipe in which there is no room, and from which
// nobody reads.
func fullPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for {
		_ = f.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := f.Write(make([]byte, 512)); errors.Is(err, os.ErrDeadlineExceeded) {
			return path
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Containers write their log into a pipe, and what reads it may be stuck.
func TestALogThatNobodyReadsHoldsUpNeitherRenewalsNorTheShutdown(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	socket := filepath.Join(socketDir(t), "s")
	p := launch{
		Env:  []string{"REDIS_ADDRS=" + redis.Addr(), "LISTEN=unix://" + socket, "ADMIN_LISTEN=off"},
		Wrap: []string{"sh", "-c", `exec "$0" "$@" 2>` + fullPipe(t)},
	}.start(t)
	p.URL, p.client = "http://localhost", newClient(socket)
	eventually(t, 10*time.Second, "the process answers", func() bool {
		res, err := p.client.Get(p.URL + "/locks")
		if err != nil {
			return false
		}
		res.Body.Close()
		return true
	})
	held := p.POST("k", "ttl=6s").Want(t, http.StatusCreated, "held")
	operator := redis.Dial()
	demand := func(password string) {
		t.Helper()
		if _, err := operator.Do("CONFIG", "SET", "requirepass", password); err != nil {
			t.Fatal(err)
		}
	}
	demand("of the operator") // connections that fail are told in the log
	if _, err := operator.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
		t.Fatal(err)
	}
	p.POST("other").Want(t, http.StatusServiceUnavailable, "store_auth_failed")
	p.awaitState("k", 6*time.Second, http.StatusOK, "at_risk")
	demand("")
	p.awaitState("k", 6*time.Second, http.StatusOK, "held") // renewed
	wantFence(t, p.GET("k"), held.JSON.Fence)

	p.Signal(syscall.SIGTERM)
	if code := p.WaitExit(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, ok := redis.Get("lock:k"); ok {
		t.Error("the lock is still there")
	}
}
