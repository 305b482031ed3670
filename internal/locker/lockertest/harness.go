package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// callDeadline bounds each call; it is far above what a healthy store needs.
	callDeadline = 10 * time.Second

	// long is a TTL that no test outlives, short one that a test waits for. In
	// real time a few calls must fit into short even on a busy machine.
	long  = time.Minute
	short = time.Second

	// rounding is how much later than its TTL a value may go, and how much of
	// its TTL may be gone when it is asked for at once.
	rounding = 5 * time.Millisecond

	pod  = "test/pod-0"
	note = "what is being done"
)

// claim returns a new claim that nobody has sent yet.
func (h Harness) claim(key locker.Key, keep time.Duration) locker.Claim {
	return locker.Claim{
		Key: key, Token: locker.NewToken(pod), Holder: pod, Note: note,
		Keep: keep, NotAfter: h.Now().Add(callDeadline),
	}
}

// past returns an instant that is over, by more than any error with which a
// backend may know its store's clock.
func (h Harness) past() locker.Instant { return h.Now().Add(-2 * time.Second) }

func (h Harness) renewal(c locker.Claim, keep time.Duration) locker.Renewal {
	return locker.Renewal{Key: c.Key, Token: c.Token, Keep: keep, NotAfter: h.Now().Add(callDeadline)}
}

func surrender(c locker.Claim, keep time.Duration) locker.Surrender {
	return locker.Surrender{Key: c.Key, Token: c.Token, Holder: c.Holder, Keep: keep}
}

func (h Harness) acquire(t T, c locker.Claim) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	return h.Backend.Acquire(ctx, c)
}

func (h Harness) renew(t T, renewals ...locker.Renewal) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	return errorsOf(t, h.Backend.Renew(ctx, renewals), len(renewals))
}

func (h Harness) release(t T, surrenders ...locker.Surrender) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	return errorsOf(t, h.Backend.Release(ctx, surrenders), len(surrenders))
}

var errVerdicts = errors.New("there is not one verdict for each lock")

func errorsOf(t T, verdicts []locker.Verdict, n int) []error {
	t.Helper()
	errs := make([]error, n)
	if len(verdicts) != n {
		t.Errorf("%d verdicts for %d locks", len(verdicts), n)
		for i := range errs {
			errs[i] = errVerdicts
		}
		return errs
	}
	for i, v := range verdicts {
		errs[i] = v.Err
	}
	return errs
}

// take acquires a key that must be free, and returns the claim and its fence.
func (h Harness) take(t T, key locker.Key, keep time.Duration) (locker.Claim, locker.Fence) {
	t.Helper()
	c := h.claim(key, keep)
	return c, h.mustAcquire(t, c)
}

func (h Harness) mustAcquire(t T, c locker.Claim) locker.Fence {
	t.Helper()
	grant, err := h.acquire(t, c)
	if err != nil {
		t.Fatalf("acquire %q: %v, want a grant", c.Key, err)
	}
	if grant.Fence <= 0 || grant.Fence > locker.MaxFence {
		t.Fatalf("acquire %q: fence %d is out of range", c.Key, grant.Fence)
	}
	return grant.Fence
}

func (h Harness) mustRelease(t T, c locker.Claim) {
	t.Helper()
	if err := h.release(t, surrender(c, 0))[0]; err != nil {
		t.Fatalf("release %q: %v", c.Key, err)
	}
}

// mustBeHeld checks that the key is refused to a stranger, and returns what
// the stranger is told.
func (h Harness) mustBeHeld(t T, key locker.Key) locker.Occupancy {
	t.Helper()
	_, err := h.acquire(t, h.claim(key, long))
	var held *locker.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("acquire %q by a stranger: %v, want a HeldError", key, err)
	}
	if held.Queued {
		t.Fatalf("acquire %q by a stranger: told that it is free and queued for, want held", key)
	}
	return held.Occupancy
}

// mustBeFree checks that a stranger gets the key, and gives it back.
func (h Harness) mustBeFree(t T, key locker.Key) {
	t.Helper()
	c, _ := h.take(t, key, long)
	h.mustRelease(t, c)
}

// mustBeOurs verifies that the claim still holds its key.
func (h Harness) mustBeOurs(t T, c locker.Claim) {
	t.Helper()
	if err := h.renew(t, h.renewal(c, 0))[0]; err != nil {
		t.Fatalf("verify %q: %v, want it to be ours", c.Key, err)
	}
}

// wantLeft checks that the key lives as long as it would, had keep been set
// by a call that began at since and has ended.
func (h Harness) wantLeft(t T, key locker.Key, keep time.Duration, since locker.Instant) {
	t.Helper()
	if h.PTTL == nil {
		return
	}
	h.wantRest(t, "the value at the key", h.PTTL(key), keep, since)
}

// wantTold checks that a grant tells that the key lives as long as that.
func (h Harness) wantTold(t T, grant locker.Grant, keep time.Duration, since locker.Instant) {
	t.Helper()
	h.wantRest(t, "the lock, as the grant tells,", grant.Left, keep, since)
}

// wantToldOf is wantTold for the grant that a claim gets.
func (h Harness) wantToldOf(t T, ask func() (locker.Grant, error), keep time.Duration, since locker.Instant) {
	t.Helper()
	grant, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	h.wantTold(t, grant, keep, since)
}

// wantToldTwice sends a claim twice, with a pause, the second time for longer: both
// answers tell what is left of the first.
func (h Harness) wantToldTwice(t T, c *locker.Claim, ask func() (locker.Grant, error)) {
	t.Helper()
	since := h.Now()
	h.wantToldOf(t, ask, long, since)
	time.Sleep(short / 4)
	c.Keep *= 10
	h.wantToldOf(t, ask, long-short/4+rounding, since.Add(short/4-rounding))
}

func (h Harness) wantRest(t T, what string, left, keep time.Duration, since locker.Instant) {
	t.Helper()
	elapsed := h.Now().Sub(since)
	if left > keep || left < keep-elapsed-rounding {
		t.Errorf("%s lives %v more, want %v less at most the %v that have passed", what, left, keep, elapsed)
	}
}

// need skips the case if the harness lacks a hand.
func need(t T, hand string, has bool) {
	t.Helper()
	if !has {
		t.Skipf("the harness has no %s", hand)
	}
}

func wantErr(t T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantRefused checks for a certain no that is one of those with which a spent
// claim may meet a key that is not free.
func wantRefused(t T, what string, err error) {
	t.Helper()
	var held *locker.HeldError
	if !errors.Is(err, locker.ErrSpent) && !errors.As(err, &held) {
		t.Errorf("%s: %v, want ErrSpent or a HeldError", what, err)
	}
}
