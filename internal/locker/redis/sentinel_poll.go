package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// straggle is how much longer than the first Sentinel the others may take to
// answer. One that was cut off may name a master of the past.
const straggle = 50 * time.Millisecond

// sighting is a master that a Sentinel has named.
type sighting struct {
	address Address
	epoch   int64 // in which they agreed on it; 0 if it does not tell
}

// poll is a question to all Sentinels at the same time. Answers that nobody
// waits for are lost.
type poll struct {
	answers chan answer
	left    int // Sentinels that have not answered
	seen    []sighting
	errs    []error
}

type answer struct {
	sighting
	err error
}

// ask asks the Sentinels which masters they know.
func (s *sentinels) ask(ctx context.Context) *poll {
	p := &poll{answers: make(chan answer, len(s.peers)), left: len(s.peers)}
	for _, peer := range s.peers {
		s.running.Go(func() {
			seen, err := peer.ask(ctx, s.name)
			p.answers <- answer{seen, err}
		})
	}
	return p
}

// collect waits for answers until ctx is over: if patience is not 0, only for so
// long after the first one.
func (p *poll) collect(ctx context.Context, patience time.Duration) {
	var late <-chan time.Time
	for p.left > 0 {
		select {
		case a := <-p.answers: // which counts though ctx should be over
			p.take(a)
		default:
			select {
			case a := <-p.answers:
				p.take(a)
			case <-late:
				return
			case <-ctx.Done():
				return
			}
		}
		if late == nil && patience > 0 && len(p.seen) > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
	}
}

func (p *poll) take(a answer) {
	p.left--
	if a.err != nil {
		p.errs = append(p.errs, a.err)
		return
	}
	p.seen = append(p.seen, a.sighting)
}

// latest returns the masters that were named, those of the latest epoch first.
func (p *poll) latest() []sighting {
	seen := slices.Clone(p.seen)
	slices.SortStableFunc(seen, func(a, b sighting) int { return cmp.Compare(b.epoch, a.epoch) })
	return slices.Compact(seen)
}

// naming counts the Sentinels that name a master of that epoch, or of a later one.
func (p *poll) naming(epoch int64) int {
	n := 0
	for _, at := range p.seen {
		if at.epoch >= epoch {
			n++
		}
	}
	return n
}

// failure is why no master was named; nil if one was.
func (p *poll) failure() error {
	if len(p.seen) > 0 {
		return nil
	}
	if p.left > 0 {
		return errors.Join(append(p.errs, errors.New("a Sentinel does not answer"))...)
	}
	return errors.Join(p.errs...)
}
