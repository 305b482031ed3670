package quorum

import (
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// doubts knows of claims whose votes had no certain outcome at which members they
// may be. Whoever has put such a claim gives it up, or puts it again; and what
// becomes of it then says nothing of a member that does not answer this time.
type doubts struct {
	mu      sync.Mutex
	claims  map[locker.Token]doubt
	sweepAt int // how many claims are worth a look for those that are over
}

type doubt struct {
	at   uint64         // the members, as bits
	over locker.Instant // it has ended there by itself by then
}

func newDoubts() *doubts { return &doubts{claims: make(map[locker.Token]doubt)} }

// add takes in that a claim may be at members, which are given as bits.
func (d *doubts) add(c locker.Claim, at uint64, now locker.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.claims[c.Token]
	d.claims[c.Token] = doubt{known.at | at, max(known.over, c.NotAfter.Add(c.Keep+lateSlack))}
	if len(d.claims) >= d.sweepAt {
		for token, known := range d.claims {
			if now > known.over {
				delete(d.claims, token)
			}
		}
		d.sweepAt = 2*len(d.claims) + 64
	}
}

// may tells whether a token may be at member i.
func (d *doubts) may(token locker.Token, i int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims[token].at&(1<<i) != 0
}

// drop takes in that nothing has to be remembered of a token any more.
func (d *doubts) drop(token locker.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.claims, token)
}
