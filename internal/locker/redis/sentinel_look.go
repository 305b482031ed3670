package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// look asks the Sentinels and goes over to the master that they name, once it
// has said itself that it is one. It says whether anything has changed, and
// whether to look again soon: a later master is known, and could not be used.
func (s *sentinels) look() (changed, overdue bool) {
	ctx, cancel := context.WithTimeout(s.ctx, s.make.config.StoreTimeout)
	defer cancel()
	s.mu.Lock()
	master, epoch, suspect := s.master, s.epoch, s.suspect
	s.suspect = false // what fails from now on is news
	s.mu.Unlock()
	p := s.ask(ctx)
	p.collect(ctx, straggle)
	defer func() { s.forgetCandidates(p) }()
	var err error
	for _, at := range p.latest() {
		if at.epoch < epoch {
			break // it does not know yet
		}
		if master != nil && at.address == master.address {
			if !overdue {
				s.confirmed(at)
			}
			return false, overdue
		}
		n, failure := s.candidate(at.address)
		if failure == nil {
			s.goOver(n, at)
			return true, p.left > 0 // who may know of a later one
		}
		err = failure
		if at.epoch > epoch {
			overdue = true
			p.collect(ctx, 0)
			if 2*p.naming(at.epoch) > len(s.peers) {
				s.leave(at, failure)
				return master != nil, true
			}
		}
	}
	if suspect || master == nil {
		p.collect(ctx, 0)
		if n, at := s.former(p, master, epoch); n != nil {
			s.goOver(n, at)
			return true, overdue
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = cmp.Or(err, p.failure())
	s.suspect = s.suspect || suspect
	return false, overdue
}

// former returns a master of an earlier epoch that says that it is one: if no
// Sentinel of all that answer knows the present epoch, and the present master is
// of no use. Sentinels that were made anew begin with their epochs anew. The few
// that name a later one, which is of no use either, are not counted.
func (s *sentinels) former(p *poll, master *node, epoch int64) (*node, sighting) {
	named := p.latest()
	if slices.ContainsFunc(named, func(at sighting) bool { return at.epoch == epoch }) || master != nil && s.connects(master) {
		return nil, sighting{}
	}
	for _, at := range named {
		if at.epoch > epoch {
			continue
		}
		if master != nil && at.address == master.address {
			break
		}
		if n, err := s.candidate(at.address); err == nil {
			return n, at
		}
	}
	return nil, sighting{}
}

// connects tells whether a new connection to a server can be opened.
func (s *sentinels) connects(n *node) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.make.config.StoreTimeout)
	defer cancel()
	p := s.make.pipeline("probe", n.connector(), 1)
	defer p.close()
	return p.connectAll(ctx) == nil
}

// candidate returns the server at an address, once it is ready to be the master.
// One that is not is kept for the next look: it knows when our password is to be
// tried again, and what has been logged.
func (s *sentinels) candidate(a Address) (*node, error) {
	n := s.candidates[a]
	if n == nil {
		n = s.make.new(a)
		s.candidates[a] = n
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.make.config.StoreTimeout)
	defer cancel()
	if err := n.acquire.connectAll(ctx); err != nil {
		return nil, err
	}
	delete(s.candidates, a)
	return n, nil
}

// forgetCandidates closes those that no Sentinel names any more.
func (s *sentinels) forgetCandidates(p *poll) {
	if p.left > 0 {
		return // one that has not answered may do so
	}
	for a, n := range s.candidates {
		if !slices.ContainsFunc(p.seen, func(at sighting) bool { return at.address == a }) {
			delete(s.candidates, a)
			n.close()
		}
	}
}

// confirmed takes in that the master is still the one that they name.
func (s *sentinels) confirmed(at sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.failure = max(s.epoch, at.epoch), nil
}

// leave gives the master up for one that does not answer yet: most Sentinels
// name that, so others may be using it.
func (s *sentinels) leave(at sighting, why error) {
	s.mu.Lock()
	old := s.master
	s.master, s.epoch, s.failure = nil, at.epoch, why
	if old != nil {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if old == nil {
		return
	}
	s.log.Warn("there is another master, which does not answer yet", "addr", at.address.String(), "before", old.address.String(), "err", why)
	old.close()
}

// goOver makes n the master. Whatever is on its way to the one before is cut off
// at once: that may still be a master by its own account, and grant what nobody
// will remember.
func (s *sentinels) goOver(n *node, at sighting) {
	s.mu.Lock()
	old := s.master
	s.master, s.epoch, s.suspect, s.failure = n, at.epoch, false, nil
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if old == nil {
		s.log.Info("found the master", "addr", n.address.String())
		return
	}
	s.log.Warn("there is another master", "addr", n.address.String(), "before", old.address.String())
	old.close()
}

// errNoMaster is that a Sentinel watches no master of the name.
func errNoMaster(a Address, name string) error {
	return fmt.Errorf("the Sentinel at %s knows no master named %s", a, name)
}
