package main

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestBoundLocksAtSIGTERM(t *testing.T) {
	t.Parallel()
	const grace = 1500 * time.Millisecond // as long as may be
	for _, mode := range []string{"drop", "guarded", "release"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			p, other := on(t, r, "SHUTDOWN_MODE="+mode, "SHUTDOWN_GRACE="+grace.String()), on(t, r)
			leaves, stays := p.bindHeld("leaves", "ttl=60s"), p.bindByCurl("stays", "ttl=60s")
			all := []*follower{leaves, stays}
			stays.await("held", 10*time.Second)
			watcher := p.watch("stays")
			watcher.await("held", 10*time.Second)
			next := other.bind("leaves", "ttl=60s", "wait=30s")
			other.awaitWaiting(1)

			began := locker.BootTime()
			p.Signal(syscall.SIGTERM)
			for _, f := range append(all, watcher) {
				if told := f.await("draining", 5*time.Second); told.at.Sub(began) >= grace || told.JSON.ValidForMS <= 0 {
					t.Errorf("%s: draining after %v: %s", f.key, told.at.Sub(began), told.Body)
				}
			}
			p.POST("new").Want(t, http.StatusServiceUnavailable, "shutting_down")
			// A connection that ends during the grace clears its lock.
			leaves.close()
			granted := next.await("held", 5*time.Second)
			for _, f := range []*follower{stays, watcher} {
				lost := f.await("lost", 5*time.Second)
				if granted.at > lost.at {
					t.Errorf("the lock of one who left was not free before the end of the grace, but %v later", granted.at.Sub(lost.at))
				}
				if took := lost.at.Sub(began); took < grace || lost.JSON.Cause != string(locker.CauseShutdown) {
					t.Errorf("%s: lost after %v: %s", f.key, took, lost.Body)
				}
				if (lost.JSON.ValidForMS > 0) != (mode != "drop") {
					t.Errorf("%s: nobody else can have it for %d ms", f.key, lost.JSON.ValidForMS)
				}
				f.await("", 5*time.Second)
			}
			if code := p.WaitExit(2*time.Second + shutdownSlack); code != 0 {
				t.Errorf("exit code %d", code)
			}
			dropped, released, unconfirmed, left := p.stopped()
			if released != 1 || unconfirmed != 0 || dropped+left != 1 || (dropped == 1) != (mode == "drop") {
				t.Errorf("%d dropped, %d released, %d unconfirmed, %d left", dropped, released, unconfirmed, left)
			}
			if pttl := r.PTTL("lock:stays"); (pttl > 0) != (mode != "drop") {
				t.Errorf("PTTL %v", pttl)
			}
			next.close()
		})
	}
}

func TestADrainIsToldOverStreams(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	bound, loose := p.bindHeld("bound", "ttl=60s"), p.watch("loose")
	loose.await("", 5*time.Second) // it is not held
	p.POST("loose", "ttl=60s").Finally(t, http.StatusCreated, "held")
	loose = p.watch("loose")
	for _, f := range []*follower{bound, loose} {
		f.await("held", 5*time.Second)
	}
	p.Request(http.MethodPost, "/drain").Finally(t, http.StatusNoContent, "")
	for _, f := range []*follower{bound, loose} {
		f.await("draining", 5*time.Second)
	}
	if got := bound.kinds(); got != "held draining" {
		t.Errorf("it was told %s", got)
	}
	p.GET("bound").Want(t, http.StatusOK, "held")
	bound.close()
	awaitFree(t, r, "bound", 10*time.Second)
}

func TestALockTakenFromItsHolderIsToldSo(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, other := on(t, r), on(t, r)
	for path, c := range map[string]struct {
		param  string
		status int
	}{
		"/locks/k": {"force=true", http.StatusNoContent}, "/locks": {"all=true", http.StatusOK},
	} {
		f := p.bindHeld("k", "ttl=60s", "owner=w1")
		next := other.bind("k", "ttl=60s", "wait=30s")
		other.awaitWaiting(1)
		p.record.gaveUp(p, "k", locker.BootTime())
		p.Request(http.MethodDelete, path, c.param).Finally(t, c.status, "")
		if lost := f.await("lost", 5*time.Second); lost.JSON.Cause != string(locker.CauseRevoked) {
			t.Errorf("%s: %s", path, lost.Body)
		}
		f.await("", 5*time.Second)
		p.GET("k", "owner=w1").Want(t, http.StatusGone, "lost")
		next.await("held", 5*time.Second)
		next.close()
		awaitFree(t, r, "k", 10*time.Second)
	}
	mine := p.bindHeld("k", "ttl=60s", "owner=w1")
	p.DELETE("k", "owner=w1").Finally(t, http.StatusNoContent, "")
	mine.await("released", 5*time.Second)
	mine.await("", 5*time.Second)
	p.GET("k", "owner=w1").Want(t, http.StatusNotFound, "not_held")
}

// An exiting sidecar of which nobody was told to go takes its streams along.
func TestAKilledSidecarEndsItsStreams(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := on(t, r)
	f := p.bindByCurl("k", "ttl=2s")
	f.await("held", 10*time.Second)
	p.Kill()
	f.await("", 5*time.Second)
	if err := f.curl.Wait(); err == nil {
		t.Error("curl takes a torn stream for a whole one")
	}
	awaitFree(t, r, "k", 2*time.Second+unevenness)
}
