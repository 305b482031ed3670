package renewer

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestLocksThatComeAndGoDoNotWakeTheLoop(t *testing.T) {
	now := locker.Instant(time.Hour)
	w := New(func() locker.Instant { return now })
	woken := func() bool {
		select {
		case <-w.wake:
			return true
		default:
			return false
		}
	}
	beat := func(id locker.GrantID, ttl time.Duration) locker.Beat {
		return locker.Beat{ID: id, Confirmed: now, TTL: ttl, ValidUntil: now.Add(ttl)}
	}
	w.Watch(beat(1, time.Minute))
	if !woken() {
		t.Fatal("a loop that sleeps for good was not woken")
	}
	w.turn()
	w.Forget(1)
	for id := locker.GrantID(2); id < 100; id++ {
		w.Watch(beat(id, 30*time.Second))
		w.Forget(id)
		if woken() {
			t.Fatal("the loop was woken for a lock that is due after it turns by itself")
		}
	}
	w.Watch(beat(100, time.Second))
	if !woken() {
		t.Error("the loop was not woken for a lock that is due before it turns")
	}
	w.Forget(100)
	// Once nothing has been watched for a whole turn, it sleeps until woken.
	for range 2 {
		now = now.Add(maxSleep)
		w.turn()
	}
	w.Watch(beat(101, time.Hour))
	if !woken() {
		t.Error("a loop that sleeps for good was not woken")
	}
}
