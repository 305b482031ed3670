package locker_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// notebook is a journal in memory. It outlives the sidecar that writes it.
type notebook struct {
	mu       sync.Mutex
	records  map[locker.GrantID]locker.Record
	floor    locker.Floor
	doubtful bool
	dead     bool            // the process has ended: nothing is written any more
	full     error           // what writes fail with
	owed     []locker.Record // what was to be written meanwhile, all the same
	writing  bool

	// step is called before and after each write, without the mutex.
	step func(done bool, records []locker.Record)
}

var (
	errDead = errors.New("injected: the process has ended")
	errFull = errors.New("injected: no space is left")
)

func newNotebook() *notebook {
	return &notebook{records: make(map[locker.GrantID]locker.Record)}
}

// next closes the notebook and returns one for the next process.
func (n *notebook) next() *notebook {
	n.set(func() { n.dead = true })
	return n.copy()
}

func (n *notebook) copy() *notebook {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &notebook{records: maps.Clone(n.records), floor: n.floor, doubtful: n.doubtful}
}

func (n *notebook) Write(records []locker.Record, floor locker.Floor) error {
	n.mu.Lock()
	step := n.step
	if n.writing {
		panic("two write at a time")
	}
	n.writing = true
	n.mu.Unlock()
	if step != nil {
		step(false, records)
	}
	err := n.keep(records, floor)
	if step != nil {
		step(true, records)
	}
	n.set(func() { n.writing = false })
	return err
}

func (n *notebook) keep(records []locker.Record, floor locker.Floor) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return errDead
	}
	if n.full != nil {
		for _, r := range records {
			if r.Phase != locker.PhaseAsking && r.Phase != locker.PhaseGranted {
				n.owed = append(n.owed, r)
			}
		}
		return n.full
	}
	for _, r := range append(n.owed, records...) {
		if r.Phase == locker.PhaseOver {
			delete(n.records, r.ID)
		} else {
			n.records[r.ID] = r
		}
	}
	n.owed, n.floor = nil, floor
	return nil
}

func (n *notebook) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *notebook) saved() locker.Saved {
	n.mu.Lock()
	defer n.mu.Unlock()
	records := slices.SortedFunc(maps.Values(n.records), func(a, b locker.Record) int { return cmp.Compare(a.ID, b.ID) })
	return locker.Saved{Records: records, Floor: n.floor, StoreTimeout: storeTimeout, Doubtful: n.doubtful}
}

// phases counts the records by phase.
func (n *notebook) phases() map[locker.Phase]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := make(map[locker.Phase]int)
	for _, r := range n.records {
		count[r.Phase]++
	}
	return count
}
