package quorum

import "time"

// Settle returns once nothing is on its way and nothing that is due is owed. No
// call may begin meanwhile, except by others who settle.
func (b *Backend) Settle() {
	for {
		b.crew.mu.Lock()
		for b.crew.working > len(b.nodes) { // the bailiffs go on
			b.crew.changed.Wait()
		}
		b.crew.mu.Unlock()
		if !b.owesNow() {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (b *Backend) owesNow() bool {
	for _, n := range b.nodes {
		n.mu.Lock()
		now, owes := n.now(), n.taking > 0
		for _, d := range n.debts {
			owes = owes || d.due <= now
		}
		n.mu.Unlock()
		if owes {
			return true
		}
	}
	return false
}

// Owed returns how many locks are still to be taken back from members.
func (b *Backend) Owed() (owed int) {
	for _, n := range b.nodes {
		n.mu.Lock()
		owed += len(n.debts) + n.taking
		n.mu.Unlock()
	}
	return owed
}

// Renewing returns how many locks are remembered of which renewals are on their
// way.
func (b *Backend) Renewing() int {
	b.healing.mu.Lock()
	defer b.healing.mu.Unlock()
	return len(b.healing.locks)
}

// Coming returns how many tokens are remembered that requests may yet put to a
// member.
func (b *Backend) Coming() (coming int) {
	for _, n := range b.nodes {
		n.mu.Lock()
		for _, a := range n.coming {
			if !a.over(n.now()) {
				coming++
			}
		}
		n.mu.Unlock()
	}
	return coming
}

// Doubted returns how many claims are remembered whose votes had no certain
// outcome.
func (b *Backend) Doubted() int {
	b.doubts.mu.Lock()
	defer b.doubts.mu.Unlock()
	return len(b.doubts.claims)
}
