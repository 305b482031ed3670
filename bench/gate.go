package main

import "sync"

// gate is where polite workers stand back after a release, until another has
// been granted the lock or the contest is over.
type gate struct {
	polite bool

	mu     sync.Mutex
	change sync.Cond
	grants int
	over   bool
}

func newGate(polite bool) *gate {
	g := &gate{polite: polite}
	g.change.L = &g.mu
	return g
}

// granted returns the number of the grant.
func (g *gate) granted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants++
	g.change.Broadcast()
	return g.grants
}

// standBack waits for the grant after the numbered one.
func (g *gate) standBack(grant int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.polite && g.grants == grant && !g.over {
		g.change.Wait()
	}
}

// open ends the contest: nobody is to stand back or to begin anew.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.change.Broadcast()
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}
