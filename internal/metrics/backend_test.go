package metrics

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/locker/memory"
)

// answers is a backend that answers after a second what it was told to.
type answers struct {
	grant    locker.Grant
	err      error
	verdicts []locker.Verdict
}

func (a *answers) Acquire(context.Context, locker.Claim) (locker.Grant, error) {
	time.Sleep(time.Second)
	return a.grant, a.err
}

func (a *answers) Renew(context.Context, []locker.Renewal) []locker.Verdict {
	time.Sleep(time.Second)
	return a.verdicts
}

func (a *answers) Release(context.Context, []locker.Surrender) []locker.Verdict {
	time.Sleep(time.Second)
	return a.verdicts
}

type inspects struct{ err error }

func (i inspects) Inspect(context.Context, locker.Key) (locker.Occupancy, error) {
	return locker.Occupancy{QueueLength: 3}, i.err
}

type annotates struct{ err error }

func (a annotates) Annotate(context.Context, locker.Key, locker.Token, string) error { return a.err }

type queues struct {
	verdict locker.Verdict
	err     error
}

func (q queues) AcquireInLine(context.Context, locker.Claim, locker.Turn) (locker.Grant, error) {
	return locker.Grant{Fence: 8}, q.err
}

func (q queues) Leave(context.Context, locker.Key, locker.Turn) error { return q.err }

func (q queues) HandOver(context.Context, locker.Surrender, locker.Claim, locker.Turn) (locker.Verdict, locker.Grant, error) {
	return q.verdict, locker.Grant{Fence: 9}, q.err
}

func (q queues) Listen(_ context.Context, process string, hear func(locker.Hint)) {
	hear(locker.Hint{Key: locker.Key(process)})
}

type heals struct{ err error }

func (h heals) Heal(_ context.Context, remedies []locker.Remedy) []locker.Verdict {
	return make([]locker.Verdict, len(remedies))
}

func (h heals) Raise(_ context.Context, r locker.Raising) (locker.Fence, error) {
	return r.Fence + 1, h.err
}

func TestTheMeasuredBackendCanDoWhatTheInnerCan(t *testing.T) {
	for _, inner := range []locker.Backend{
		&answers{},
		struct {
			*answers
			inspects
		}{},
		struct {
			*answers
			annotates
		}{},
		struct {
			*answers
			queues
		}{},
		struct {
			*answers
			inspects
			annotates
		}{},
		struct {
			*answers
			inspects
			queues
		}{},
		struct {
			*answers
			annotates
			queues
		}{},
		struct {
			*answers
			inspects
			annotates
			queues
		}{},
		struct {
			*answers
			inspects
			annotates
			queues
			heals
		}{},
		memory.New(memory.Config{}),
	} {
		outer := New(quiet()).Backend(inner)
		if got, want := abilitiesOf(outer), abilitiesOf(inner); got != want {
			t.Errorf("inspects, annotates, queues, is a member, breaks: %v, want %v", got, want)
		}
	}
}

func abilitiesOf(b locker.Backend) [5]bool {
	_, member := b.(locker.Member)
	_, inspects := b.(locker.Inspector)
	_, annotates := b.(locker.Annotator)
	_, queues := b.(locker.Queue)
	_, breaks := b.(locker.Breaker)
	return [5]bool{inspects, annotates, queues, member, breaks}
}

func TestAnswersPassUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("failure")
		inner := struct {
			*answers
			inspects
			annotates
			queues
			heals
		}{
			&answers{grant: locker.Grant{Fence: 7}, err: failure, verdicts: []locker.Verdict{{}, {Err: failure}}},
			inspects{failure}, annotates{failure}, queues{locker.Verdict{Err: locker.ErrGone}, failure},
			heals{failure},
		}
		b := New(quiet()).Backend(inner)
		ctx := t.Context()

		if grant, err := b.Acquire(ctx, locker.Claim{}); grant.Fence != 7 || err != failure {
			t.Errorf("Acquire: %v, %v", grant, err)
		}
		for name, verdicts := range map[string][]locker.Verdict{
			"Renew":   b.Renew(ctx, make([]locker.Renewal, 2)),
			"Release": b.Release(ctx, make([]locker.Surrender, 2)),
		} {
			if len(verdicts) != 2 || verdicts[0].Err != nil || verdicts[1].Err != failure {
				t.Errorf("%s: %v", name, verdicts)
			}
		}
		if occupancy, err := b.(locker.Inspector).Inspect(ctx, "k"); occupancy.QueueLength != 3 || err != failure {
			t.Errorf("Inspect: %v, %v", occupancy, err)
		}
		if err := b.(locker.Annotator).Annotate(ctx, "k", locker.Token{}, ""); err != failure {
			t.Errorf("Annotate: %v", err)
		}

		q := b.(locker.Queue)
		if grant, err := q.AcquireInLine(ctx, locker.Claim{}, locker.Turn{}); grant.Fence != 8 || err != failure {
			t.Errorf("AcquireInLine: %v, %v", grant, err)
		}
		if err := q.Leave(ctx, "k", locker.Turn{}); err != failure {
			t.Errorf("Leave: %v", err)
		}
		verdict, grant, err := q.HandOver(ctx, locker.Surrender{}, locker.Claim{}, locker.Turn{})
		if verdict.Err != locker.ErrGone || grant.Fence != 9 || err != failure {
			t.Errorf("HandOver: %v, %v, %v", verdict, grant, err)
		}
		member := b.(locker.Member)
		if fence, err := member.Raise(ctx, locker.Raising{Fence: 5}); fence != 6 || err != failure {
			t.Errorf("Raise: %v, %v", fence, err)
		}
		if n := len(member.Heal(ctx, make([]locker.Remedy, 2))); n != 2 {
			t.Errorf("Heal: %d verdicts", n)
		}
		var heard locker.Hint
		q.Listen(ctx, "p", func(h locker.Hint) { heard = h })
		if heard.Key != "p" {
			t.Errorf("Listen: %v", heard)
		}
	})
}

func TestACallIsFiledByWhatItLeavesKnown(t *testing.T) {
	storeError := func(reason locker.StoreReason, certain bool) error {
		return fmt.Errorf("acquire: %w", &locker.StoreError{Reason: reason, Certain: certain})
	}
	for _, c := range []struct {
		err     error
		outcome storeOutcome
		reason  locker.StoreReason
	}{
		{nil, outcomeYes, ""},
		{&locker.HeldError{}, outcomeNo, ""},
		{locker.ErrKeyConflict, outcomeNo, ""},
		{locker.ErrSpent, outcomeNo, ""},
		{locker.ErrLate, outcomeNo, ""},
		{storeError(locker.StoreWriteRefused, true), outcomeFailed, locker.StoreWriteRefused},
		{storeError(locker.StoreBroken, false), outcomeUnknown, locker.StoreBroken},
		{fmt.Errorf("acquire: %w", context.Canceled), outcomeUnknown, ""},
		{context.DeadlineExceeded, outcomeUnknown, locker.StoreTimeout},
		{errors.New("surprise"), outcomeUnknown, locker.StoreFailed},
	} {
		t.Run(fmt.Sprint(c.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := New(quiet())
				_, _ = m.Backend(&answers{err: c.err}).Acquire(t.Context(), locker.Claim{})
				p := page(t, m)
				series := fmt.Sprintf(`{op="acquire",outcome="%s"} 1`, c.outcome)
				wantLine(t, p, "locksidecar_store_request_duration_seconds_count"+series)
				wantLine(t, p, "locksidecar_store_request_duration_seconds_sum"+series)
				for _, reason := range locker.StoreReasons {
					count := 0
					if reason == c.reason {
						count = 1
					}
					wantLine(t, p, fmt.Sprintf(`locksidecar_store_errors_total{reason="%s"} %d`, reason, count))
				}
			})
		})
	}
}

func TestABatchIsOneCallFiledUnderItsWorstVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &locker.StoreError{Reason: locker.StoreBroken}
		refused := &locker.StoreError{Reason: locker.StoreWriteRefused, Certain: true}
		b := &answers{verdicts: []locker.Verdict{{}, {Err: broken}, {Err: locker.ErrGone}, {Err: refused}, {Err: broken}}}
		m := New(quiet())
		m.Backend(b).Renew(t.Context(), make([]locker.Renewal, len(b.verdicts)))
		b.verdicts = []locker.Verdict{{Err: locker.ErrGone}, {}}
		m.Backend(b).Release(t.Context(), make([]locker.Surrender, len(b.verdicts)))

		p := page(t, m)
		wantLine(t, p, `locksidecar_store_request_duration_seconds_count{op="renew",outcome="unknown"} 1`)
		wantLine(t, p, `locksidecar_store_request_duration_seconds_sum{op="renew",outcome="unknown"} 1`)
		wantLine(t, p, `locksidecar_store_request_duration_seconds_count{op="release",outcome="no"} 1`)
		wantLine(t, p, `locksidecar_store_errors_total{reason="broken"} 1`)
		wantLine(t, p, `locksidecar_store_errors_total{reason="write_refused"} 1`)
		wantLine(t, p, `locksidecar_store_request_duration_seconds_count{op="renew",outcome="yes"} 0`)
	})
}

func TestEveryAbilityIsCountedUnderItsOwnName(t *testing.T) {
	m := New(quiet())
	b := m.Backend(struct {
		*answers
		inspects
		annotates
		queues
	}{queues: queues{verdict: locker.Verdict{Err: locker.ErrGone}}})
	ctx := t.Context()
	_, _ = b.(locker.Inspector).Inspect(ctx, "k")
	_ = b.(locker.Annotator).Annotate(ctx, "k", locker.Token{}, "")
	q := b.(locker.Queue)
	_, _ = q.AcquireInLine(ctx, locker.Claim{}, locker.Turn{})
	_ = q.Leave(ctx, "k", locker.Turn{})
	_, _, _ = q.HandOver(ctx, locker.Surrender{}, locker.Claim{}, locker.Turn{})

	p := page(t, m)
	for op, outcome := range map[storeOp]storeOutcome{
		opInspect: outcomeYes, opAnnotate: outcomeYes, opAcquireInLine: outcomeYes, opLeave: outcomeYes,
		opHandOver: outcomeNo, // the worse of its two answers
	} {
		wantLine(t, p, fmt.Sprintf(`locksidecar_store_request_duration_seconds_count{op="%s",outcome="%s"} 1`, op, outcome))
	}
}
