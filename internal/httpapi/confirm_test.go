package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func (f *fakeLocks) awaitArrived(t *testing.T, id locker.GrantID, within time.Duration) {
	t.Helper()
	over := time.After(within)
	for {
		f.mu.Lock()
		arrived, changed := f.arrived[id] > 0, f.changed
		f.mu.Unlock()
		if arrived {
			return
		}
		select {
		case <-changed:
		case <-over:
			t.Fatalf("not within %v: told that the answer has arrived", within)
		}
	}
}

func (f *fakeLocks) told(id locker.GrantID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.arrived[id] > 0
}

func journaled(locks Locks) Config {
	cfg := testConfig(locks)
	cfg.Journaled = true
	return cfg
}

func TestAnAnswerThatWasTakenIsToldOfWhileItsConnectionIsOpen(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		locks := newFakeLocks()
		_, address := serve(t, network, journaled(locks))
		c := dial(t, network, address)
		for id := locker.GrantID(1); id < 10; id++ { // the first ones are acknowledged faster
			c.send(post)
			c.answerStatus(http.StatusCreated)
			locks.awaitArrived(t, id, patience)
			if got, _ := locks.fate(id); got != fateOpen {
				t.Fatalf("grant %d is %s while its connection is open", id, got)
			}
		}
		_ = c.Conn.Close()
		locks.awaitFate(t, 9, fateCleared, patience)
	})
}

// On a Unix socket it shows whether the caller has read.
func TestAnAnswerThatIsNotReadYetIsNotToldOf(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "unix", journaled(locks))
	c := dial(t, "unix", address)
	c.send(post)
	c.awaitUnread()
	time.Sleep(30 * time.Millisecond) // for whoever would tell of it all the same
	if locks.told(1) {
		t.Fatal("it was told as arrived")
	}
	c.answerStatus(http.StatusCreated)
	locks.awaitArrived(t, 1, patience)
}

func TestAnAnswerThatWasNotTakenIsGivenBackAndNotToldOf(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "unix", journaled(locks))
	c := dial(t, "unix", address)
	c.send(post)
	c.awaitUnread()
	_ = c.Conn.Close() // with input unread, as a kernel does for a process that is killed
	locks.awaitFate(t, 1, fateGivenBack, patience)
	if locks.told(1) {
		t.Error("it was told as arrived")
	}
}

func TestWithoutAJournalNobodyIsToldOfArrivals(t *testing.T) {
	locks := newFakeLocks()
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	c.send(post)
	c.answerStatus(http.StatusCreated)
	_ = c.Conn.Close()
	locks.awaitFate(t, 1, fateCleared, patience)
	if locks.told(1) {
		t.Error("it was told as arrived")
	}
}
