package httpapi

import (
	"container/heap"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// maxNap bounds how late it is noticed that the machine was suspended: Go's
// timers stand still meanwhile.
const maxNap = 100 * time.Millisecond

// alarms wakes streams at instants of the boot clock. One goroutine does so for
// all of them.
type alarms struct {
	now  locker.Clock
	poke chan struct{}

	mu    sync.Mutex
	queue alarmQueue
}

// alarm is a stream's place among them.
type alarm struct {
	at    locker.Instant
	index int // in the queue; -1 outside
	wake  func()
}

func newAlarms(now locker.Clock) *alarms { return &alarms{now: now, poke: make(chan struct{}, 1)} }

// set has wake called at an instant, instead of any earlier one. wake must not
// block.
func (as *alarms) set(a *alarm, at locker.Instant) {
	as.mu.Lock()
	defer as.mu.Unlock()
	a.at = at
	if a.index >= 0 {
		heap.Fix(&as.queue, a.index)
	} else {
		heap.Push(&as.queue, a)
	}
	if a.index == 0 {
		select {
		case as.poke <- struct{}{}:
		default:
		}
	}
}

// clear has wake not be called, unless that is happening already.
func (as *alarms) clear(a *alarm) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a.index >= 0 {
		heap.Remove(&as.queue, a.index)
	}
}

// run wakes who is due until stop is closed.
func (as *alarms) run(stop <-chan struct{}) {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	for {
		due, nap := as.take()
		for _, a := range due {
			a.wake()
		}
		if nap > 0 {
			timer.Reset(nap)
		} else {
			timer.Stop()
		}
		select {
		case <-stop:
			return
		case <-as.poke:
		case <-timer.C:
		}
	}
}

// take returns those who are due, and how long to sleep; 0 until poked.
func (as *alarms) take() (due []*alarm, nap time.Duration) {
	as.mu.Lock()
	defer as.mu.Unlock()
	now := as.now()
	for len(as.queue) > 0 {
		if left := as.queue[0].at.Sub(now); left > 0 {
			return due, min(left, maxNap)
		}
		due = append(due, heap.Pop(&as.queue).(*alarm))
	}
	return due, 0
}

// alarmQueue is a heap of alarms by when they are due.
type alarmQueue []*alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *alarmQueue) Push(x any) {
	a := x.(*alarm)
	a.index = len(*q)
	*q = append(*q, a)
}

func (q *alarmQueue) Pop() any {
	old := *q
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	a.index = -1
	return a
}
