package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var inspectCases = []testCase{
	{"inspecting tells free, held, min_hold and free again", func(t T, h Harness) {
		if o := h.inspect(t, "k"); o != (locker.Occupancy{State: locker.OccupancyFree}) {
			t.Errorf("before: %+v, want free and nothing else", o)
		}
		c := h.claim("k", long)
		since := h.Now()
		grant, err := h.acquire(t, c)
		if err != nil {
			t.Fatal(err)
		}
		o := h.inspect(t, "k")
		if o.State != locker.OccupancyHeld || o.ExpiresIn <= long/2 || o.ExpiresIn > long {
			t.Errorf("taken: %+v, want held for %v", o, long)
		}
		wantHolder(t, o, note, grant)
		h.wantLeft(t, "k", long, since)
		h.mustBeOurs(t, c)

		wantErr(t, "release", h.release(t, surrender(c, short/4))[0], nil)
		o = h.inspect(t, "k")
		if o.State != locker.OccupancyMinHold || o.ExpiresIn <= 0 || o.ExpiresIn > short/4 {
			t.Errorf("released early: %+v, want min_hold for %v", o, short/4)
		}
		wantHolder(t, o, note, grant)
		time.Sleep(short/4 + rounding)
		if o := h.inspect(t, "k"); o != (locker.Occupancy{State: locker.OccupancyFree}) {
			t.Errorf("after: %+v, want free and nothing else", o)
		}
	}},
	{"inspecting tells of another library's lock only that it is held", func(t T, h Harness) {
		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, long)
		o := h.inspect(t, "k")
		if o.State != locker.OccupancyHeld || o.Holder != nil || o.ExpiresIn <= long/2 || o.ExpiresIn > long {
			t.Errorf("%+v, want held for %v by nobody named", o, long)
		}
		h.wantValue(t, "k", stranger)
	}},
	{"inspecting does not call a value without TTL free", func(t T, h Harness) {
		inspector := h.inspector(t)
		need(t, "Put", h.Put != nil)
		h.Put("k", stranger, 0)
		o, err := inspector.Inspect(t.Context(), "k")
		switch {
		case err != nil:
			wantErr(t, "inspect", err, locker.ErrKeyConflict)
		case o.State == locker.OccupancyFree || o.Holder != nil:
			t.Errorf("%+v", o)
		}
	}},
	{"a note can be replaced by the holder alone", func(t T, h Harness) {
		annotator, ok := h.Backend.(locker.Annotator)
		need(t, "Annotator", ok)
		since := h.Now()
		c, fence := h.take(t, "k", long)
		annotate := func(c locker.Claim, note string) error {
			return annotator.Annotate(t.Context(), c.Key, c.Token, note)
		}
		for _, text := range []string{`"half" done`, "", "закончено 🔒"} {
			wantErr(t, "annotate", annotate(c, text), nil)
			if o := h.mustBeHeld(t, "k"); o.Holder == nil || o.Holder.Note != text {
				t.Errorf("got %+v, want the note %q", o.Holder, text)
			}
		}
		wantErr(t, "annotate another's lock", annotate(h.claim("k", long), "mine"), locker.ErrTaken)
		if o := h.mustBeHeld(t, "k"); o.Holder == nil || o.Holder.Note != "закончено 🔒" {
			t.Errorf("got %+v, want the holder's note", o.Holder)
		}
		h.wantLeft(t, "k", long, since)
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("fence %d, was %d", again, fence)
		}
		wantErr(t, "release", h.release(t, surrender(c, 0))[0], nil)
		wantErr(t, "annotate after the release", annotate(c, "late"), locker.ErrGone)
		if o := h.inspect(t, "k"); o.State != locker.OccupancyFree {
			t.Errorf("annotating brought the key back: %+v", o)
		}
	}},
}

func (h Harness) inspector(t T) locker.Inspector {
	t.Helper()
	inspector, ok := h.Backend.(locker.Inspector)
	need(t, "Inspector", ok)
	return inspector
}

func (h Harness) inspect(t T, key locker.Key) locker.Occupancy {
	t.Helper()
	o, err := h.inspector(t).Inspect(t.Context(), key)
	if err != nil {
		t.Fatalf("inspect %q: %v", key, err)
	}
	return o
}

// promptly is the time within which a call answers a caller who has left.
const promptly = 2 * time.Second

var contextCases = []testCase{
	{"a caller who has already left is answered promptly, and never with a no that is not one", func(t T, h Harness) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller left"))
		c, fence := h.take(t, "held", long)
		unsent := h.claim("free", long)

		since := h.Now()
		_, err := h.Backend.Acquire(ctx, unsent)
		wantUndecided(t, "acquire", err)
		certain := locker.CertainNo(err)
		for _, v := range h.Backend.Renew(ctx, []locker.Renewal{h.renewal(c, long), h.renewal(c, 0)}) {
			wantUndecided(t, "renew", v.Err)
		}
		for _, v := range h.Backend.Release(ctx, []locker.Surrender{surrender(unsent, 0), surrender(unsent, 0)}) {
			wantUndecided(t, "release", v.Err)
		}
		if inspector, ok := h.Backend.(locker.Inspector); ok {
			if _, err := inspector.Inspect(ctx, "held"); err == nil {
				t.Errorf("inspect answered a caller who had left")
			}
		}
		if took := h.Now().Sub(since); took > promptly {
			t.Errorf("the answers took %v", took)
		}
		if certain {
			h.mustBeFree(t, "free")
		}
		if again := h.mustAcquire(t, c); again != fence {
			t.Errorf("fence %d, was %d", again, fence)
		}
	}},
}

// wantUndecided checks for an answer that says nothing of the lock: unknown,
// or that nothing was done.
func wantUndecided(t T, what string, err error) {
	t.Helper()
	var store *locker.StoreError
	if err == nil || locker.CertainNo(err) && !errors.As(err, &store) {
		t.Errorf("%s: %v, want unknown or that nothing was done", what, err)
	}
}
