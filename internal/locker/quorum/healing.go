package quorum

import (
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// healing knows of which locks renewals are on their way, whose answers may have
// them put back, and that one was given back meanwhile: an answer that comes
// late must not bring it back.
type healing struct {
	mu    sync.Mutex
	locks map[locker.Token]renewing
}

type renewing struct {
	polls int  // of the members that are not over
	over  bool // it was given back
}

func newHealing() *healing { return &healing{locks: make(map[locker.Token]renewing)} }

// begin takes in that members are asked to renew locks. It must be followed by
// end.
func (h *healing) begin(renewals []locker.Renewal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range renewals {
		l := h.locks[r.Token]
		l.polls++
		h.locks[r.Token] = l
	}
}

// end takes in that all members have answered.
func (h *healing) end(renewals []locker.Renewal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range renewals {
		l := h.locks[r.Token]
		if l.polls--; l.polls <= 0 {
			delete(h.locks, r.Token)
		} else {
			h.locks[r.Token] = l
		}
	}
}

// giveUp has no lock of those put back any more. What is on its way for that is
// expected at its member by then; see [healing.prescribe].
func (h *healing) giveUp(surrenders []locker.Surrender) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range surrenders {
		if l, ok := h.locks[s.Token]; ok {
			l.over = true
			h.locks[s.Token] = l
		}
	}
}

// prescribe returns those remedies that may be sent to a member, which expects
// them from then on.
func (h *healing) prescribe(n *node, remedies []locker.Remedy) (sent []locker.Remedy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range remedies {
		if !h.locks[r.Token].over {
			n.expect(r.Token, r.NotAfter)
			sent = append(sent, r)
		}
	}
	return sent
}
