package lockertest

import (
	"context"
	"flag"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// mutant is a backend whose methods can be replaced.
type mutant struct {
	acquire  func(context.Context, locker.Claim) (locker.Grant, error)
	renew    func(context.Context, []locker.Renewal) []locker.Verdict
	release  func(context.Context, []locker.Surrender) []locker.Verdict
	inspect  func(context.Context, locker.Key) (locker.Occupancy, error)
	annotate func(context.Context, locker.Key, locker.Token, string) error
	inLine   func(context.Context, locker.Claim, locker.Turn) (locker.Grant, error)
	leave    func(context.Context, locker.Key, locker.Turn) error
	handOver func(context.Context, locker.Surrender, locker.Claim, locker.Turn) (locker.Verdict, locker.Grant, error)
	listen   func(context.Context, string, func(locker.Hint))
	heal     func(context.Context, []locker.Remedy) []locker.Verdict
	raise    func(context.Context, locker.Raising) (locker.Fence, error)
	sight    func(context.Context, locker.Key) (locker.Sighting, error)
	tear     func(context.Context, locker.Breach) (time.Duration, error) // Break
}

func (m *mutant) Sight(ctx context.Context, key locker.Key) (locker.Sighting, error) {
	return m.sight(ctx, key)
}

func (m *mutant) Break(ctx context.Context, b locker.Breach) (time.Duration, error) {
	return m.tear(ctx, b)
}

func (m *mutant) Acquire(ctx context.Context, c locker.Claim) (locker.Grant, error) {
	return m.acquire(ctx, c)
}

func (m *mutant) Renew(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
	return m.renew(ctx, renewals)
}

func (m *mutant) Release(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
	return m.release(ctx, surrenders)
}

func (m *mutant) Inspect(ctx context.Context, key locker.Key) (locker.Occupancy, error) {
	return m.inspect(ctx, key)
}

func (m *mutant) Annotate(ctx context.Context, key locker.Key, token locker.Token, note string) error {
	return m.annotate(ctx, key, token, note)
}

func (m *mutant) AcquireInLine(ctx context.Context, c locker.Claim, t locker.Turn) (locker.Grant, error) {
	return m.inLine(ctx, c, t)
}

func (m *mutant) Leave(ctx context.Context, key locker.Key, t locker.Turn) error {
	return m.leave(ctx, key, t)
}

func (m *mutant) HandOver(ctx context.Context, s locker.Surrender, c locker.Claim, t locker.Turn) (locker.Verdict, locker.Grant, error) {
	return m.handOver(ctx, s, c, t)
}

func (m *mutant) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	m.listen(ctx, process, hear)
}

func (m *mutant) Heal(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
	return m.heal(ctx, remedies)
}

func (m *mutant) Raise(ctx context.Context, r locker.Raising) (locker.Fence, error) {
	return m.raise(ctx, r)
}

// mutated returns a harness whose backend makes one mistake, or none.
func mutated(mutate func(Harness, *mutant)) Harness {
	h := memoryHarness()
	b := h.Backend
	q := b.(locker.Member)
	m := &mutant{
		acquire: b.Acquire, renew: b.Renew, release: b.Release,
		inspect: q.Inspect, annotate: q.Annotate,
		inLine: q.AcquireInLine, leave: q.Leave, handOver: q.HandOver, listen: q.Listen,
		heal: q.Heal, raise: q.Raise,
	}
	breaker := b.(locker.Breaker)
	m.sight, m.tear = breaker.Sight, breaker.Break
	if mutate != nil {
		mutate(h, m)
	}
	h.Backend = m
	return h
}

func eachRenewal(renew func(context.Context, []locker.Renewal) []locker.Verdict, alter func(locker.Renewal, error) error) func(context.Context, []locker.Renewal) []locker.Verdict {
	return func(ctx context.Context, renewals []locker.Renewal) []locker.Verdict {
		verdicts := renew(ctx, renewals)
		for i := range verdicts {
			verdicts[i].Err = alter(renewals[i], verdicts[i].Err)
		}
		return verdicts
	}
}

func eachSurrender(release func(context.Context, []locker.Surrender) []locker.Verdict, alter func(locker.Surrender, error) error) func(context.Context, []locker.Surrender) []locker.Verdict {
	return func(ctx context.Context, surrenders []locker.Surrender) []locker.Verdict {
		verdicts := release(ctx, surrenders)
		for i := range verdicts {
			verdicts[i].Err = alter(surrenders[i], verdicts[i].Err)
		}
		return verdicts
	}
}

// run returns the names of the cases that a backend fails; no more than one
// if it is a mutant.
func run(t *testing.T, mutate func(Harness, *mutant)) (failed []string) {
	for _, c := range cases() {
		if mutate != nil && len(failed) > 0 {
			break
		}
		synctest.Test(t, func(t *testing.T) {
			r := record(t.Context(), c, mutated(mutate))
			if r.skipped {
				t.Errorf("%q was skipped", c.name)
			}
			if r.failed {
				t.Logf("%s: %s", c.name, r.said[0])
				failed = append(failed, c.name)
			}
		})
	}
	return failed
}

func TestSuiteFailsOnEveryMutant(t *testing.T) {
	keepRapidQuiet(t)
	caught := 0
	mutants := slices.Concat(mutants, queueMutants, memberMutants, breakMutants)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if failed := run(t, m.mutate); len(failed) == 0 {
				t.Error("every case passes")
				return
			}
			caught++
		})
	}
	t.Logf("mutants caught %d/%d", caught, len(mutants))
}

func TestSuitePassesOnTheMutantsOriginal(t *testing.T) {
	if failed := run(t, nil); len(failed) > 0 {
		t.Errorf("failed: %q", failed)
	}
}

// keepRapidQuiet has rapid write no files about failures that are wanted, and
// search no smaller ones.
func keepRapidQuiet(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "0s"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) }) // it was valid before
	}
}
