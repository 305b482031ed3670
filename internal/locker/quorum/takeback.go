package quorum

import "github.com/locksidecar/locksidecar/internal/locker"

// takeBackLocked has the claim undone at member i, if it may be there or come.
func (v *vote) takeBackLocked(i int) {
	if v.mayBeAtLocked(i) {
		v.b.nodes[i].takeBack(v.claim)
	}
}

// mayBeAtLocked tells whether member i may have the token, or come to have it.
func (v *vote) mayBeAtLocked(i int) bool {
	s, token := v.seats[i].state, v.claim.Token
	return !s.saysNo() || v.b.nodes[i].mayHave(token) || !s.lacks() && v.b.doubts.may(token, i)
}

// mayBeLocked returns the members of which mayBeAtLocked says so, as bits.
func (v *vote) mayBeLocked() (at uint64) {
	for i := range v.seats {
		if v.mayBeAtLocked(i) {
			at |= 1 << i
		}
	}
	return at
}

// settleLocked ends what doubt there was of the claim once all members have been
// heard after a certain outcome.
func (v *vote) settleLocked() {
	if v.err != nil && !locker.CertainNo(v.err) || len(v.atLocked(asked)) > 0 {
		return
	}
	v.b.doubts.drop(v.claim.Token)
}
