package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestTheListTellsAll(t *testing.T) {
	locks := newFakeLocks()
	h := newAPI(testConfig(locks))
	if body := bodyOf(t, do(t, h, "GET", "/locks", "")); body != `{"locks":[]}`+"\n" {
		t.Errorf("an empty list is %s", body)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	locks.list = func() []locker.Entry {
		st := locks.statusOf(1, locker.Request{Key: "a", Owner: "w", TTL: time.Minute})
		return []locker.Entry{
			{State: locker.EntryHeld, Key: "a", Owner: "w", At: at, Status: &st},
			{State: locker.EntryAsking, Key: "b", Note: "n", At: at},
			{State: locker.EntryLost, Key: "c", At: at, Lost: &locker.LostError{Fence: 9, Cause: locker.CauseTaken, LostAt: at}},
		}
	}
	body := bodyOf(t, do(t, h, "GET", "/locks", "", "Accept", "text/plain"))
	for _, want := range []string{
		`{"state":"held","key":"a","owner":"w","note":"","at":"2026-01-02T03:04:05.000Z","held":{"key":"a","state":"held"`,
		`{"state":"asking","key":"b","owner":"","note":"n","at":"2026-01-02T03:04:05.000Z"}`,
		`"lost":{"fencing_token":9,"cause":"taken","lost_at":"2026-01-02T03:04:05.000Z"}}]}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s\nis missing in\n%s", want, body)
		}
	}
}

func TestManyLocksAreReleasedByOwnerOrAltogether(t *testing.T) {
	for target, want := range map[string]struct {
		owner string
		all   bool
	}{"/locks?owner=w": {"w", false}, "/locks?all=true": {"", true}, "/locks?all=false&owner=w": {"w", false}} {
		locks := newFakeLocks()
		locks.where = func(owner string, all bool) (released, unconfirmed []locker.Key) {
			if owner != want.owner || all != want.all {
				t.Errorf("%s: owner %q, all %v", target, owner, all)
			}
			return []locker.Key{"a", "b"}, nil
		}
		response := do(t, newAPI(testConfig(locks)), "DELETE", target, "")
		if body := bodyOf(t, response); response.StatusCode != 200 || body != `{"released":["a","b"],"unconfirmed":[]}`+"\n" {
			t.Errorf("%s: %d %s", target, response.StatusCode, body)
		}
	}
}

func TestDrainAndQuit(t *testing.T) {
	locks := newFakeLocks()
	cfg := testConfig(locks)
	quits := 0
	cfg.Quit = func() { quits++ }
	h := newAPI(cfg)
	if response := do(t, h, "POST", "/drain", ""); response.StatusCode != http.StatusNoContent || !locks.drained.Load() || quits != 0 {
		t.Errorf("drain: status %d, drained %v", response.StatusCode, locks.drained.Load())
	}
	if response := do(t, h, "POST", "/quit", ""); response.StatusCode != http.StatusAccepted || quits != 1 {
		t.Errorf("quit: status %d, quits %d", response.StatusCode, quits)
	}
}

func TestTheAnswerToQuitIsWrittenBeforeTheServerStops(t *testing.T) {
	onEveryNetwork(t, func(t *testing.T, network string) {
		cfg := testConfig(newFakeLocks())
		quit := make(chan struct{})
		cfg.Quit = func() { close(quit) }
		s, address := serve(t, network, cfg)
		c := dial(t, network, address)
		c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-quit
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.answerStatus(http.StatusAccepted)
	})
}
