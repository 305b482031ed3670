package lockertest

import (
	"context"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Member returns f as a member of a quorum, which the wrapped backend must be.
func (f *Faulty) Member() locker.Member { return f.member(f.backend.(locker.Member)) }

func (f *Faulty) member(inner locker.Member) locker.Member {
	return struct {
		*Faulty
		*faultyQueue
		*faultyMember
	}{f, &faultyQueue{f, inner}, &faultyMember{f, inner}}
}

// faultyMember injects faults into what only the members of a quorum do.
type faultyMember struct {
	f      *Faulty
	member locker.Member
}

// Heal implements [locker.Healer]. A fault befalls a batch as a whole.
func (m *faultyMember) Heal(ctx context.Context, remedies []locker.Remedy) []locker.Verdict {
	return answerBatch(m.f, ctx, OpHeal, remedies, func(r locker.Remedy) locker.Key { return r.Key }, m.member.Heal)
}

// Raise implements [locker.Raiser].
func (m *faultyMember) Raise(ctx context.Context, r locker.Raising) (locker.Fence, error) {
	return answer(m.f, ctx, OpRaise, []locker.Key{r.Key}, func(ctx context.Context) (locker.Fence, error) {
		return m.member.Raise(ctx, r)
	})
}
