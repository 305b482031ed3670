package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// How long to wait before the Sentinels are asked again while something is
	// wrong; it grows from the least to the most.
	lookMin = 50 * time.Millisecond
	lookMax = time.Second

	// lookEvery is how often they are asked when nothing is: a word of theirs
	// may have been lost.
	lookEvery = 10 * time.Second
)

// sentinels finds the master of a name, and follows it: when a Sentinel tells of
// another, and when the present one is of no use.
type sentinels struct {
	name  string
	make  *nodes
	peers []*peer
	log   *slog.Logger

	ctx     context.Context // ends when it is closed
	cancel  context.CancelFunc
	running sync.WaitGroup
	news    chan struct{} // a Sentinel has said something: look now
	doubt   chan struct{} // the master was of no use: look soon

	candidates map[Address]*node // that were no use as masters; follow has them

	mu      sync.Mutex
	master  *node         // nil until one is known
	epoch   int64         // in which the Sentinels agreed on it
	suspect bool          // the master was of no use since it was last looked for
	changed chan struct{} // closed, and replaced, when there is another
	failure error         // of the latest look
}

func newSentinels(all *nodes) *sentinels {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sentinels{
		name: all.config.MasterName, make: all, log: all.config.Log, ctx: ctx, cancel: cancel,
		news: make(chan struct{}, 1), doubt: make(chan struct{}, 1), changed: make(chan struct{}),
		candidates: make(map[Address]*node),
	}
	for _, a := range all.config.Addrs {
		s.peers = append(s.peers, newPeer(all, a))
	}
	for _, p := range s.peers {
		s.running.Go(func() { p.follow(ctx, s.name, s.lookNow) })
	}
	s.running.Go(s.follow)
	return s
}

// lookNow has the Sentinels asked at once.
func (s *sentinels) lookNow() { poke(s.news) }

// poke wakes whoever waits for the channel, now or next.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// follow asks the Sentinels at the start, at their word, when the master is of
// no use, though not without a pause, and now and then.
func (s *sentinels) follow() {
	var latest time.Time
	pause := lookMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.doubt:
			timer.Reset(max(0, pause-time.Since(latest)))
			continue
		case <-s.news:
		case <-timer.C:
		}
		calm := time.Since(latest) >= lookEvery
		latest = time.Now()
		changed, overdue := s.look()
		if changed || calm {
			pause = lookMin
		} else {
			pause = min(2*pause, lookMax)
		}
		if overdue || s.owner("") == nil {
			timer.Reset(pause)
		} else {
			timer.Reset(lookEvery)
		}
	}
}

// route implements [servers].
func (s *sentinels) route(ctx context.Context, _ *call) (*node, error) {
	for {
		s.mu.Lock()
		master, changed := s.master, s.changed
		s.mu.Unlock()
		if master != nil {
			return master, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, notFound(s.failure)
		case <-s.ctx.Done():
			return nil, &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: errClosed}
		}
	}
}

// notFound is the failure of a call for which no server was known in time.
func notFound(why error) error {
	if why == nil {
		why = errors.New("no answer yet")
	}
	reason := locker.StoreUnavailable
	if connectFailure(why).Reason == locker.StoreAuthFailed {
		reason = locker.StoreAuthFailed
	}
	return &locker.StoreError{Reason: reason, Certain: true, Err: fmt.Errorf("the server is not known: %w", why)}
}

func (s *sentinels) known(*call) *node { return s.owner("") }

func (s *sentinels) owner(string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

// failed implements [servers]: it waits until there is another master, or for a
// while in which the present one may have come to itself.
func (s *sentinels) failed(ctx context.Context, n *node, strays []stray, attempt int) bool {
	s.mu.Lock()
	other := s.master != n
	if !other && unserved(strays) {
		s.suspect = true
		poke(s.doubt)
	}
	changed := s.changed
	s.mu.Unlock()
	switch {
	case !astray(strays) || s.ctx.Err() != nil:
		return false
	case other: // somebody has learned of it meanwhile
		return ctx.Err() == nil
	}
	return waitForChange(ctx, changed, attempt)
}

// all implements [servers].
func (s *sentinels) all() ([]*node, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master == nil {
		return nil, s.changed
	}
	return []*node{s.master}, s.changed
}

func (s *sentinels) apart() bool { return false }

// close cuts all connections and waits for all goroutines.
func (s *sentinels) close() {
	s.cancel()
	s.running.Wait()
	for _, p := range s.peers {
		p.asking.close()
	}
	for _, n := range s.candidates {
		n.close()
	}
	if s.master != nil {
		s.master.close()
	}
}
