package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

func keysOf(s locker.Section) string {
	var keys []string
	for _, e := range s.Entries {
		keys = append(keys, string(e.Key))
	}
	return strings.Join(keys, " ")
}

// lined is a gate that keeps a line.
type lined struct {
	*gate
	locker.Queue
}

var everything = locker.Query{Limit: 1000}

func TestAnOverviewTellsOfAllThatIsGoingOn(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s, other := w.sidecarOn("shop/web-0", lined{g, w.store}, locker.Config{}), w.sidecar("shop/web-1")
		r := want("old", 30*time.Second)
		r.Owner, r.Note = "w1", "the first"
		s.take(r)
		w.pass(20 * time.Second)
		s.take(want("new", 30*time.Second))
		s.take(want("gone", 3*time.Second))
		other.take(locker.Request{Key: "theirs", TTL: 30 * time.Second, Renew: true, Note: "busy"})
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		w.enter(other, ctx, waiting("theirs", time.Minute))
		first := w.enter(s, ctx, waiting("theirs", time.Minute))
		second := w.enter(s, ctx, waiting("theirs", 30*time.Second))
		third := w.enter(s, ctx, waiting("new", time.Minute))
		w.store.Delete("gone")
		w.pass(2 * time.Second)
		g.set(func(g *gate) { g.release = hangRelease })
		s.take(want("leaving", 30*time.Second))
		var open *locker.UnconfirmedError
		if err := s.release("leaving"); !errors.As(err, &open) {
			t.Fatalf("release: %v", err)
		}

		o := s.Overview(everything)
		if got := fmt.Sprint(o.Tally); got != "map[asking:0 at_risk:0 held:2 lost:1 releasing:1 waiting:3]" {
			t.Errorf("the tally is %s", got)
		}
		if o.OldestHeldFor != 22*time.Second+storeTimeout {
			t.Errorf("the oldest is held for %v", o.OldestHeldFor)
		}
		for name, section := range map[string]struct {
			locker.Section
			want string
		}{
			"held": {o.Held, "new old"}, "waiting": {o.Waiting, "new theirs theirs"},
			"releasing": {o.Releasing, "leaving"}, "lost": {o.Lost, "gone"},
		} {
			if got := keysOf(section.Section); got != section.want || section.Matching != len(section.Entries) {
				t.Errorf("%s: %q, %d matching; want %q", name, got, section.Matching, section.want)
			}
		}
		old := o.Held.Entries[1]
		if old.Owner != "w1" || old.Note != "the first" || old.For != o.OldestHeldFor || old.Status.Renewals != 2 || old.Status.ValidFor <= 20*time.Second {
			t.Errorf("the old lock is shown as %+v, %+v", old, old.Status)
		}
		if lost := o.Lost.Entries[0]; lost.Lost.Cause != locker.CauseGone || lost.For <= time.Second || lost.For > 2*time.Second {
			t.Errorf("the lost lock is shown as %+v, %+v", lost, lost.Lost)
		}
		if e := o.Releasing.Entries[0]; e.For != storeTimeout {
			t.Errorf("the release is shown as %+v", e)
		}

		here := o.Waiting.Entries[0].InLine
		if here.Place != 1 || *here.Ahead != 0 || here.Occupancy.Holder.Pod != "shop/web-0" {
			t.Errorf("the waiter for a lock that is held here: %+v", here)
		}
		for i, left := range []time.Duration{time.Minute, 30 * time.Second} {
			e := o.Waiting.Entries[1+i]
			p := e.InLine
			if p.Place != i+1 || *p.Ahead != 1 || p.Occupancy.QueueLength != 2 || p.Occupancy.Holder.Pod != "shop/web-1" || p.Occupancy.Holder.Note != "busy" {
				t.Errorf("waiter %d: %+v, ahead %d, %+v", i+1, p, *p.Ahead, p.Occupancy)
			}
			if passed := 2*time.Second + storeTimeout; e.For != passed || p.Left != left-passed {
				t.Errorf("waiter %d has waited for %v and waits for %v", i+1, e.For, p.Left)
			}
		}
		if fmt.Sprint(s.List()[0].Key) != "leaving" {
			t.Errorf("the list begins with %+v", s.List()[0])
		}
		cancel()
		for _, got := range []<-chan granted{first, second, third} {
			<-got
		}
	})
}

func TestAnOverviewShowsThoseAtRiskFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", g, locker.Config{})
		s.take(want("a", 30*time.Second))
		g.set(func(g *gate) {
			g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict { return all(len(r), errDown) }
		})
		w.pass(10 * time.Second)
		s.take(want("c", 30*time.Second))
		o := s.Overview(locker.Query{Limit: 1})
		if keysOf(o.Held) != "a" || o.Held.Entries[0].State != locker.EntryAtRisk || o.Held.Matching != 2 || o.Tally[locker.EntryAtRisk] != 1 {
			t.Errorf("shown is %+v of %d; the tally is %v", o.Held.Entries, o.Held.Matching, o.Tally)
		}
	})
}

func TestAnOverviewCanBeNarrowed(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		for i := range 500 {
			r := want(locker.Key(fmt.Sprintf("job/%03d", (i*7)%500)), time.Hour)
			r.Owner, r.Note = fmt.Sprint("w", i%10), "Straße"
			s.take(r)
			w.pass(time.Millisecond)
		}
		newest := func(match func(i int) bool, n int) string {
			var keys []string
			for i := range 500 {
				if i = 499 - i; match(i) && len(keys) < n {
					keys = append(keys, fmt.Sprintf("job/%03d", (i*7)%500))
				}
			}
			return strings.Join(keys, " ")
		}
		for _, tt := range []struct {
			q        locker.Query
			matching int
			want     string
		}{
			{locker.Query{Limit: 3}, 500, newest(func(int) bool { return true }, 3)},
			{locker.Query{Limit: 30}, 500, newest(func(int) bool { return true }, 30)},
			{locker.Query{Limit: 3, Match: "W3"}, 50, newest(func(i int) bool { return i%10 == 3 }, 3)},
			{locker.Query{Limit: 3, Match: "JOB/00"}, 10, newest(func(i int) bool { return (i*7)%500 < 10 }, 3)},
			{locker.Query{Limit: 1000, Match: "straß"}, 500, newest(func(int) bool { return true }, 500)},
			{locker.Query{Limit: 1000, Match: "none"}, 0, ""},
			{locker.Query{}, 500, ""},
		} {
			o := s.Overview(tt.q)
			if got := keysOf(o.Held); got != tt.want || o.Held.Matching != tt.matching || o.Tally[locker.EntryHeld] != 500 {
				t.Errorf("%+v: %d of %d match: %q\nwant %q", tt.q, o.Held.Matching, o.Tally[locker.EntryHeld], got, tt.want)
			}
		}
	})
}

func TestAnOverviewIsNoAnswerThatTellsOfAGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		st := s.take(owned("k", "w1"))
		s.Overview(everything)
		s.GiveBack(st.ID)
		w.pass(time.Second)
		if s.Holds("k") {
			t.Error("who looked at the overview kept an undelivered grant alive")
		}
	})
}

// TestEveryChangeIsTold takes each step while somebody watches, and wants to
// hear of it.
func TestEveryChangeIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		g := &gate{Backend: w.store}
		s := w.sidecarOn("a", lined{g, w.store}, locker.Config{})
		other := w.sidecar("b")
		other.take(want("theirs", 30*time.Second))
		ctx, leave := context.WithCancel(w.t.Context())
		defer leave()
		var fence locker.Fence
		note := "changed"
		for _, step := range []struct {
			what string
			do   func()
		}{
			{"a lock is taken", func() { fence = s.take(want("k", 3*time.Second)).Fence }},
			{"it is renewed", func() { w.pass(time.Second) }},
			{"it is changed", func() {
				if _, err := s.Extend(ctx, "k", locker.Handle{Fence: fence}, locker.Changes{Note: &note}); err != nil {
					t.Fatal(err)
				}
			}},
			{"its renewal fails", func() {
				g.set(func(g *gate) {
					g.renew = func(_ context.Context, r []locker.Renewal) []locker.Verdict { return all(len(r), errDown) }
				})
				w.pass(1100 * time.Millisecond)
			}},
			{"it is renewed again", func() { g.set(func(g *gate) { g.renew = nil }); w.pass(time.Second) }},
			{"it is lost", func() { w.store.Delete("k"); w.pass(1100 * time.Millisecond) }},
			{"the loss is told and forgotten", func() {
				if err := s.release("k"); !errors.As(err, new(*locker.LostError)) {
					t.Fatal(err)
				}
			}},
			{"a lock is asked for", func() {
				g.set(func(g *gate) { g.acquire = hangAcquire })
				go func() { _ = s.tryTake(want("hanging", 30*time.Second)) }()
				w.pass(storeTimeout / 2)
			}},
			{"nobody knows whether it was taken", func() { w.pass(storeTimeout); g.set(func(g *gate) { g.acquire = nil }) }},
			{"another lock is taken", func() { s.take(want("l", 30*time.Second)) }},
			{"a release is on its way", func() {
				g.set(func(g *gate) { g.release = hangRelease })
				go func() { _ = s.release("l") }()
				w.pass(storeTimeout / 2)
			}},
			{"it is not confirmed", func() { w.pass(storeTimeout) }},
			{"it is confirmed", func() { g.set(func(g *gate) { g.release = nil }); w.pass(time.Second) }},
			{"a caller waits", func() { w.enter(s, ctx, waiting("theirs", time.Minute)) }},
			{"another waits", func() { w.enter(s, w.t.Context(), waiting("theirs", 20*time.Second)) }},
			{"a waiter leaves", func() { leave(); w.pass(0) }},
			{"a wait is over", func() { w.pass(20 * time.Second) }},
			{"it drains", func() { s.Drain() }},
			{"it shuts down", func() { s.Refuse() }},
		} {
			changed := s.Changes()
			step.do()
			select {
			case <-changed:
			default:
				t.Errorf("nobody was told that %s", step.what)
			}
		}
	})
}

func TestNothingIsToldWhileNothingChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.sidecar("a")
		s.take(want("k", time.Hour))
		changed := s.Changes()
		s.Get("k", locker.Handle{})
		s.List()
		s.Overview(everything)
		w.pass(10 * time.Minute)
		select {
		case <-changed:
			t.Error("a change was told")
		default:
		}
		if s.Changes() != changed {
			t.Error("those who look at the same moment do not share what they wait for")
		}
	})
}

// BenchmarkOverviewOfTenThousand shows for how long a look holds the table's
// mutex.
func BenchmarkOverviewOfTenThousand(b *testing.B) {
	l, err := locker.New(locker.Config{MaxHeld: 10_000}, memory.New(memory.Config{}), renewer.New(locker.BootTime))
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		r := want(locker.Key(fmt.Sprintf("shop/orders/%05d", i)), time.Hour)
		r.Owner, r.Note = fmt.Sprint("worker-", i%100), "what is being done"
		if _, _, err := l.Acquire(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	for _, match := range []string{"", "orders/0999"} {
		b.Run("match="+match, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if o := l.Overview(locker.Query{Match: match, Limit: 200}); len(o.Held.Entries) == 0 {
					b.Fatal("nothing is shown")
				}
			}
		})
	}
}
