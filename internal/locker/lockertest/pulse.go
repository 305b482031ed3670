package lockertest

import (
	"sync"
	"time"
)

const (
	// disturbance is a pause of this process after which a case that fails in
	// real time shows nothing: a few calls no longer fit into short.
	disturbance = 50 * time.Millisecond
	// mostTries is how often such a case is tried.
	mostTries = 5
)

// pulse finds out for how long this process was not run.
type pulse struct {
	over chan struct{}
	done sync.WaitGroup

	longest time.Duration // of the goroutine until it is done
}

func takePulse() *pulse {
	const beat = 5 * time.Millisecond
	p := &pulse{over: make(chan struct{})}
	p.done.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for last := time.Now(); ; {
			over := false
			select {
			case <-ticker.C:
			case <-p.over:
				over = true
			}
			now := time.Now()
			p.longest = max(p.longest, now.Sub(last)-beat)
			if last = now; over {
				return
			}
		}
	})
	return p
}

// stop returns the longest pause.
func (p *pulse) stop() time.Duration {
	close(p.over)
	p.done.Wait()
	return p.longest
}
