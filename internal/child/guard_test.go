package child

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// at is an instant that long after the beginning of a test.
func at(d time.Duration) locker.Instant { return locker.Instant(time.Hour).Add(d) }

func TestTheClockDemandsTERMAndThenKILLBeforeTheLeaseEnds(t *testing.T) {
	for _, tt := range []struct {
		killAfter, until, term, kill time.Duration
	}{
		{killAfter: 5 * second, until: 30 * second, term: 25 * second, kill: 30*second - 50*ms},
		{killAfter: 300 * ms, until: second, term: 700 * ms, kill: 970 * ms},
		{killAfter: 0, until: second, term: -1, kill: second},
	} {
		g := guard{killAfter: tt.killAfter, until: at(tt.until)}
		var term, kills time.Duration = -1, -1
		for now := time.Duration(0); now <= tt.until; now += ms {
			switch g.due(at(now)) {
			case terminate:
				term = now
			case kill:
				kills = now
			}
		}
		if term != tt.term || kills != tt.kill {
			t.Errorf("kill-after %v: TERM at %v, KILL at %v; want %v and %v", tt.killAfter, term, kills, tt.term, tt.kill)
		}
		if g.reason != overdue {
			t.Errorf("the reason is %q", g.reason)
		}
	}
}

func TestARenewalMovesBothAndAStopIsNotTakenBack(t *testing.T) {
	g := guard{killAfter: 3 * second, until: at(10 * second)}
	g.renewed(at(20 * second))
	if got := g.due(at(16 * second)); got != nothing {
		t.Fatalf("one second before TERM is due: %v", got)
	}
	if got := g.due(at(17 * second)); got != terminate {
		t.Fatalf("when TERM is due: %v", got)
	}
	g.renewed(at(60 * second)) // the command has been told to end by now
	if got := g.due(at(19900 * ms)); got != nothing {
		t.Fatalf("before the lead: %v", got)
	}
	if got := g.due(at(19950 * ms)); got != kill {
		t.Fatalf("when KILL is due: %v", got)
	}
}

func TestALossGivesTheCommandAsLongAsAnyStopButNotLongerThanTheLease(t *testing.T) {
	for _, tt := range []struct{ told, kill time.Duration }{
		{told: 10 * second, kill: 15 * second},
		{told: 24 * second, kill: 29 * second},
		{told: 25*second - ms, kill: 30*second - 50*ms},
	} {
		g := guard{killAfter: 5 * second, until: at(30 * second)}
		if g.lost("taken", at(tt.told)) != terminate {
			t.Fatal("no TERM")
		}
		if g.killAt != at(tt.kill) {
			t.Errorf("told at %v: KILL at %v, want %v", tt.told, g.killAt.Sub(at(0)), tt.kill)
		}
		if g.reason != "taken" || g.lost("expired", at(tt.told)) != nothing || g.reason != "taken" {
			t.Errorf("the reason is %q", g.reason)
		}
	}
}

func TestWhatIsToldAfterTheLeaseIsOverComesTooLate(t *testing.T) {
	g := guard{killAfter: second, until: at(10 * second)}
	// The process was stopped; the clock is asked before the news is heard.
	if got := g.due(at(time.Hour)); got != kill {
		t.Fatalf("after the end of the lease: %v", got)
	}
	g.renewed(at(2 * time.Hour))
	if !g.killed || g.until != at(10*second) {
		t.Error("a renewal that came too late was taken in")
	}
}

func TestProcessesThatAreLeftBehindAreStoppedWithoutALoss(t *testing.T) {
	g := guard{killAfter: 2 * second, until: at(30 * second)}
	if g.ended(at(5*second)) != terminate || g.ended(at(5*second)) != nothing {
		t.Fatal("TERM comes once")
	}
	if g.due(at(6999*ms)) != nothing || g.due(at(7*second)) != kill || g.reason != "" {
		t.Fatal("KILL comes after kill-after, and nothing is lost")
	}

	// A loss meanwhile concerns more processes and leaves no more time.
	g = guard{killAfter: 2 * second, until: at(30 * second)}
	g.ended(at(5 * second))
	if g.lost("gone", at(6*second)) != terminate || g.killAt != at(7*second) || g.reason != "gone" {
		t.Fatalf("a loss among them: %+v", g)
	}
}

// TestNoHistoryLeavesTheCommandRunningBeyondTheLease walks through random
// renewals, losses and pauses of the process, and checks what must always hold.
func TestNoHistoryLeavesTheCommandRunningBeyondTheLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := guard{
			killAfter: time.Duration(rapid.IntRange(0, 10_000).Draw(t, "kill-after")) * ms,
			until:     at(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "lease")) * ms),
		}
		now := at(0)
		var termed, killed bool
		check := func(a action) {
			switch a {
			case terminate:
				if termed || killed {
					t.Fatal("TERM twice, or after KILL")
				}
				termed = true
			case kill:
				if killed {
					t.Fatal("KILL twice")
				}
				killed = true
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if next, ok := g.next(); ok && rapid.Bool().Draw(t, "punctual") {
				now = max(now, min(next, now.Add(time.Minute)))
			} else {
				now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "pause")) * ms)
			}
			until, stopping := g.until, g.stopping
			check(g.due(now))
			if now >= until && !killed {
				t.Fatalf("the lease is over and the command runs: %+v", g)
			}
			if next, ok := g.next(); ok && (next > g.until || next < now) {
				t.Fatalf("the next look is at %v, now is %v: %+v", next, now, g)
			}
			if !stopping && g.stopping && !killed && now < until.Add(-g.killAfter) {
				t.Fatal("stopped for no reason")
			}
			switch rapid.SampledFrom([]string{"renewed", "renewed", "lost", "nothing"}).Draw(t, "news") {
			case "renewed":
				g.renewed(now.Add(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "lease")) * ms))
			case "lost":
				check(g.lost("taken", now))
			}
		}
	})
}
